"""What sources say that they change of others' modules."""

from __future__ import annotations

import abc
import importlib.util
import sys
import textwrap
from pathlib import Path
from types import ModuleType

import pytest

from interpool.native.inside.source_traces import changes_of


@pytest.fixture(autouse=True)
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library with flags, search paths and options."""
    package, data = ModuleType("library"), ModuleType("library.data")
    vars(package).update(FLAG=False, data=data, options={}, config=type("Config", (), {})(), add=len)
    vars(package).update(Base=abc.ABCMeta("Base", (), {}))
    vars(data).update(path=[], Reader=type("Reader", (), {}))
    monkeypatch.setitem(sys.modules, "library", package)
    monkeypatch.setitem(sys.modules, "library.data", data)


def module_of(folder: Path, source: str, name: str = "handler") -> ModuleType:
    """A module with that source, which does not run."""
    file = folder / f"{name}.py"
    file.write_text(textwrap.dedent(source))
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    return importlib.util.module_from_spec(spec)


def changes(folder: Path, source: str) -> list[str]:
    found = changes_of({"handler": module_of(folder, source)})
    return [change.replace(f"{folder}/", "") for _, change in found]


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("import library\nlibrary.FLAG = True", "library.FLAG (handler.py:2)"),
        ("import library.data\nlibrary.data.path.append('x')", "library.data.path (handler.py:2)"),
        ("from library.data import path\npath.insert(0, 'x')", "library.data.path (handler.py:2)"),
        ("from library import data\ndata.path += ['x']", "library.data.path (handler.py:2)"),
        ("import library\nlibrary.options['a'] = 1", "library.options (handler.py:2)"),
        ("import library\ndel library.options['a']", "library.options (handler.py:2)"),
        ("import library\nlibrary.config.width = 3", "library.config.width (handler.py:2)"),
        ("from library.data import Reader\nReader.read = len", "library.data.Reader.read (handler.py:2)"),
        ("import library\nlibrary.FLAG, a = 1, 2", "library.FLAG (handler.py:2)"),
        ("import library\ndef f():\n    library.FLAG = True", "library.FLAG (handler.py:3)"),
        ("import library\nsetattr(library, 'FLAG', True)", "library.FLAG (handler.py:2)"),
        ("import pandas as pd\npd.set_option('a', 1)", "pandas.set_option() (handler.py:2)"),
        ("from csv import field_size_limit\nfield_size_limit(9)", "csv.field_size_limit() (handler.py:2)"),
        ("import matplotlib.pyplot as p\np.plot([1])", "matplotlib.pyplot.plot() (handler.py:2)"),
        (
            "import library, sys\nsys.modules['library.old'] = library",
            "sys.modules['library.old'] (handler.py:2)",
        ),
        (
            "import library\nfrom library.data import Reader\nlibrary.Base.register(Reader)",
            "library.Base.register() (handler.py:3)",
        ),
        (
            "import torch\ntorch.backends.python_native.triton.enabled = False",
            "torch.backends.python_native.triton.enabled (handler.py:2)",
        ),
        ("import matplotlib.pyplot as p\np.style.use('x')", "matplotlib.pyplot.style.use() (handler.py:2)"),
        (
            "try:\n    import library\nexcept ImportError:\n    library = None\nlibrary.FLAG = True",
            "library.FLAG (handler.py:5)",
        ),
        (
            "import library\nlibrary.FLAG = True\ndef f(library): pass\ndef g():\n    library = 1",
            "library.FLAG (handler.py:2)",
        ),
        (
            "import library\nfor name in ['FLAG']:\n    setattr(library, name, True)",
            "library.name (handler.py:3)",
        ),
    ],
)
def test_changes_that_a_source_makes_to_a_library_are_named_with_their_line(
    tmp_path: Path, source: str, named: str
) -> None:
    assert changes(tmp_path, source) == [named]


@pytest.mark.parametrize(
    "source",
    [
        "import library\nx = library.FLAG\nlibrary.add([1])\nlibrary.data.path.index('x') if 0 else None",
        "import os\nos.environ['A'] = '1'\nos.environ.setdefault('B', '1')\nos.environ.pop('A')",
        "import sys\nsys.path.insert(0, 'x')\nsys.argv = []\nsys.stdout = None\nsys.modules['x'] = sys",
        "import tempfile\ntempfile.tempdir = 'x'",
        "import torch\ntorch.backends.cudnn.benchmark = True\ntorch.backends.mkldnn.enabled = False",
        "import library\nlibrary = 3\nlibrary.FLAG = True",
        "import library\ndef f(library):\n    library.FLAG = True",
        "import library\ndef f():\n    library = 1\n    def g():\n        library.FLAG = True",
        "class A: pass\na = A()\na.b = 1\na.c = []\na.c.append(1)",
        "if __name__ == '__main__':\n    import library\n    library.FLAG = True",
        "import pandas as pd\nwith pd.option_context('a', 1): pass\npd.get_option('a')",
        "import matplotlib.pyplot as p\np.plot([1])\np.close()",
        "import library\nclass Own: pass\nlibrary.Base.register(Own)",
        "import library\n@library.Base.register\nclass Own: pass",
        "from library import data\ndata.Reader.register(data.Reader)",
        "def set_option(*_): pass\nset_option('a', 1)",
        "import handler\nhandler.FLAG = True",
        "import sys\nsys.modules['handler.part'] = sys\nsys.modules['x'] = sys",
        "from . import other\nother.FLAG = True",
        "import library\nfrom unknown import thing\nthing.parts.append(1)\nlibrary.nothing.append(1)",
    ],
)
def test_reads_and_changes_of_a_models_own_are_not_named(tmp_path: Path, source: str) -> None:
    assert changes(tmp_path, source) == []


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("sys.modules['x'] = None", "sys.modules['x'] (handler.py:2)"),
        ("del sys.modules['x']", "sys.modules['x'] (handler.py:2)"),
        ("sys.modules.pop('x', None)", "sys.modules (handler.py:2)"),
        ("sys.modules[__name__] = sys", None),
        ("sys.modules[f'{__name__}.x'] = sys", None),
        ("x = sys.modules['x']", None),
        ("import handler\nhandler.FLAG = True", None),
        ("import library\nlibrary.FLAG = True", "library.FLAG (handler.py:3)"),
    ],
)
def test_a_hermetic_model_may_change_its_own_modules_only(
    tmp_path: Path, change: str, named: str | None
) -> None:
    """It shares ``sys.modules`` with all models of its interpreter, which has its modules by other names."""
    source = module_of(tmp_path, f"import sys\n{change}")
    found = [text for _, text in changes_of({"<torch_package_0>.handler": source})]
    assert [text.replace(f"{tmp_path}/", "") for text in found] == ([named] if named else [])


def test_a_source_that_is_no_python_is_passed_over(tmp_path: Path) -> None:
    good = module_of(tmp_path, "import library\nlibrary.FLAG = 1", "good")
    assert len(list(changes_of({"bad": module_of(tmp_path, "def (", "bad"), "good": good}))) == 1
