"""Python files that a model reads as data: configurations that are executed, or read as text."""

from __future__ import annotations

import compileall
import importlib
import sys
from typing import TYPE_CHECKING

import pytest

from interpool.archiver_ext import pack
from interpool.archiver_ext.packing.decide.working_trees import WorkingTrees

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from test_archiver_ext.conftest import Write

pytestmark = pytest.mark.long

PROJECT = {
    "mypkg/__init__.py": "",
    "mypkg/m.py": """
        import importlib.util
        import inspect
        import sys
        from pathlib import Path

        from mypkg import helper

        HERE = Path(__file__).parent
        sys.path.insert(0, str(HERE))
        import beside

        def executed(name):
            spec = importlib.util.spec_from_file_location(name, HERE / "configs" / f"{name}.py")
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return module

        class Entry:
            def __call__(self, x):
                scope = {}
                exec((HERE / "configs" / "text.py").read_text(), scope)
                shown = inspect.getsource(helper.double)
                return [executed("tiny").WIDTH, scope["NAME"], len(shown), helper.double(x), beside.ONE]

        example_inputs = 2.0
    """,
    "mypkg/helper.py": "def double(x):\n    return 2 * x\n",
    "mypkg/beside.py": "ONE = 1\n",
    "mypkg/configs/tiny.py": "WIDTH = 3\n",
    "mypkg/configs/text.py": "NAME = 'a'\n",
    "mypkg/configs/never.py": "",
}


def test_python_files_that_are_read_go_in_as_data_and_imported_ones_as_modules(
    project: Write, tmp_path: Path
) -> None:
    root = project(PROJECT)
    # As after another run: what is executed is read from its cache then.
    assert compileall.compile_dir(root, quiet=1)
    report = pack("mypkg.m:Entry", tmp_path / "m.ptpkg", root=root)
    assert sorted(report.plan.data) == ["mypkg/configs/text.py", "mypkg/configs/tiny.py"]
    assert {"mypkg.helper", "beside"} <= {*report.names("intern")}


def test_a_directory_of_a_package_that_is_on_the_path_too_is_called_as_the_package(
    importable: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = importable(PROJECT)
    monkeypatch.syspath_prepend(root / "mypkg")
    importlib.import_module("mypkg")
    monkeypatch.setitem(sys.modules, "beside", importlib.import_module("beside"))
    trees = WorkingTrees(root)
    assert trees.member(root / "mypkg/configs/tiny.py") == "mypkg/configs/tiny.py"
    assert trees.bases()["mypkg"] == str(root)
