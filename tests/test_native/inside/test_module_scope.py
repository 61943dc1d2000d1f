"""Modules of several models in one interpreter: each sees its own, and the environment's once."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from interpool_testing import Code, pool_of

from interpool.native import InterpreterManager, InterpreterSession
from interpool.native.errors import RemoteError

SCOPES = """
import sys
from interpool.native.inside import module_scope
from interpool.native.inside.module_scope import ModuleScope

scopes = {}

def make(name, directory, first, python_path):
    scopes[name] = ModuleScope(directory, first, python_path)

def inside(name, source):
    names = {}
    module_scope.enter(scopes[name])
    exec(source, names)
    return names.get("result")

def outside(source):
    names = {}
    module_scope.enter(None)
    exec(source, names)
    return names.get("result")

def close():
    for scope in scopes.values():
        scope.close()
    module_scope.enter(None)
"""


class Scopes:
    """Scopes in one interpreter, by name, each with a directory of its own."""

    def __init__(self, session: InterpreterSession, root: Path) -> None:
        self._code = Code(session, SCOPES)
        self._root = root

    def make(self, name: str, *, first: str = "", python_path: Sequence[str] = (), **files: str) -> Path:
        """A scope; files by their paths without ``.py``, and the folder that is first on its path."""
        directory = self._root / name
        directory.mkdir(exist_ok=True)
        for file, text in files.items():
            path = directory / f"{file}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(textwrap.dedent(text))
        before = [str(directory / first)] if first else []
        self._code.call("make", name, str(directory), before, list(python_path))
        return directory

    def inside(self, name: str, source: str) -> Any:
        return self._code.call("inside", name, textwrap.dedent(source))

    def outside(self, source: str) -> Any:
        return self._code.call("outside", textwrap.dedent(source))

    def close(self) -> None:
        self._code.call("close")


# An interpreter that has imported nothing for other tests: what was there before any scope counts.
fresh = pool_of(1)


@pytest.fixture
def scopes(fresh: InterpreterManager, tmp_path: Path) -> Iterator[Scopes]:
    with fresh.acquire_session() as session:
        made = Scopes(session, tmp_path)
        yield made
        made.close()


def test_equal_names_mean_each_scopes_own_modules(scopes: Scopes) -> None:
    for name in ("one", "two"):
        scopes.make(
            name,
            utils=f"NAME = {name!r}",
            **{"pack/__init__": ""},
            **{"pack/part": "from utils import NAME as PART"},
        )
    ask = """
        import importlib, pickle, sys
        import utils
        from pack import part
        result = [utils.NAME, part.PART, importlib.import_module("pack.part").PART, sys.modules["utils"].NAME]
    """
    for name in ("one", "two", "one", "two"):
        assert scopes.inside(name, ask) == [name] * 4
    assert (
        scopes.outside(
            "import sys; result = [n for n in sys.modules if n.split('.')[0] in ('utils', 'pack')]"
        )
        == []
    )


def test_a_name_in_the_directory_hides_the_environments(scopes: Scopes) -> None:
    scopes.outside("import colorsys")
    scopes.make("one", colorsys="NAME = 'mine'")
    ask = "import colorsys; result = getattr(colorsys, 'NAME', 'theirs')"
    assert scopes.inside("one", ask) == "mine"
    assert scopes.outside(ask) == "theirs"
    assert scopes.inside("one", ask) == "mine"


def test_a_name_in_the_handlers_folder_hides_the_environments(scopes: Scopes) -> None:
    scopes.outside("import colorsys")
    scopes.make("one", first="code", **{"code/colorsys": "NAME = 'mine'"})
    assert scopes.inside("one", "import colorsys; result = colorsys.NAME") == "mine"
    assert scopes.outside("import colorsys; result = hasattr(colorsys, 'NAME')") is False


def test_a_main_file_in_the_directory_replaces_nothing(scopes: Scopes) -> None:
    scopes.make("one", __main__="")
    same = "import sys; result = id(sys.modules['__main__'])"
    assert scopes.inside("one", same) == scopes.outside(same)


def test_a_folder_of_data_may_have_the_name_of_anothers_module(scopes: Scopes, tmp_path: Path) -> None:
    scopes.make("one")
    scopes.inside("one", "import sys, types; sys.modules['weights'] = types.ModuleType('weights')")
    (tmp_path / "two" / "weights").mkdir(parents=True)
    scopes.make("two")
    assert scopes.inside("two", "import weights; result = weights.__name__") == "weights"


def test_relative_entries_of_the_path_are_relative_to_each_models_directory(
    scopes: Scopes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The working directory is changed with the view; see ``process_view``."""
    for name, files in (("one", {"own": ""}), ("two", {"own": "", "src/in_src": ""})):
        monkeypatch.chdir(scopes.make(name, **files))
        scopes.inside(name, "import sys; sys.path.insert(0, 'src'); import own")
    scopes.inside("two", "import in_src")


def test_changes_of_the_path_are_the_scopes_own(scopes: Scopes, tmp_path: Path) -> None:
    for name in ("one", "two"):
        directory = scopes.make(name)
        for where in (directory / "src", tmp_path / f"lib-{name}"):
            where.mkdir()
            (where / f"{where.name[:3]}_module.py").write_text(f"NAME = {name!r}")
        scopes.inside(name, f"import sys; sys.path.insert(0, {str(directory / 'src')!r})")
        scopes.inside(name, f"import sys; sys.path.append({str(tmp_path / f'lib-{name}')!r})")
    ask = "import src_module, lib_module; result = [src_module.NAME, lib_module.NAME]"
    for name in ("one", "two", "one"):
        assert scopes.inside(name, ask) == [name, name]
    with pytest.raises(RemoteError, match="No module named 'src_module'"):
        scopes.outside("import src_module")


def test_the_directory_follows_all_of_pythonpath_and_precedes_the_programs_own(
    scopes: Scopes, tmp_path: Path
) -> None:
    places = {name: tmp_path / name for name in ("program", "listed", "last")}
    for place in places.values():
        place.mkdir()
    (places["program"] / "handler.py").write_text("where = 'program'")
    (places["last"] / "listed_last.py").write_text("where = 'last'")
    scopes.outside(f"import sys; sys.path[:0] = {[str(place) for place in places.values()]}")
    listed = [f"{places['listed']}{os.sep}", str(places["last"])]
    try:
        scopes.make("model", python_path=listed, handler="where = 'model'", listed_last="where = 'model'")
        found = "import handler, listed_last; result = [handler.where, listed_last.where]"
        assert scopes.inside("model", found) == ["model", "last"]
    finally:
        scopes.outside("import sys; del sys.path[:3]")


def test_all_models_share_the_modules_that_setuptools_bundles(scopes: Scopes) -> None:
    scopes.make("one")
    scopes.make("two")
    scopes.inside("one", "import setuptools")
    ask = "import jaraco.functools; result = jaraco.functools.__file__"
    (file,) = {scopes.inside("one", ask), scopes.inside("two", ask), scopes.outside(ask)}
    assert "setuptools/_vendor" in file
    same = "import sys; result = id(sys.modules['jaraco.functools'])"
    assert scopes.inside("one", same) == scopes.inside("two", same)


def test_modules_that_a_model_puts_in_place_by_hand_are_its_own(scopes: Scopes) -> None:
    scopes.make(
        "one",
        own="import sys, types\nsys.modules['made'] = types.ModuleType('made')\nsys.modules['wave'] = 'mine'",
    )
    scopes.outside("import wave")
    assert scopes.inside("one", "import own, made, wave; result = wave") == "mine"
    ask = "import sys, wave; result = ['made' in sys.modules, wave == 'mine']"
    assert scopes.outside(ask) == [False, False]
    assert scopes.inside("one", ask) == [True, True]


ANSWERS_ANYTHING = """
class Odd:
    def __getattr__(self, name): return Odd()
odd = Odd()
"""
REFUSES_ANYTHING = """
import types
class Odd(types.ModuleType):
    def __getattr__(self, name): raise ImportError("is not installed")
odd = Odd("odd")
"""
HAS_NO_CLASS = """
class Odd:
    @property
    def __class__(self): raise RuntimeError("is not configured")
odd = Odd()
"""
IS_A_CLASS_THAT_HAS_NOTHING = """
class Meta(type):
    def __getattribute__(self, name): raise RuntimeError("is not configured")
class odd(metaclass=Meta): pass
"""


@pytest.mark.parametrize(
    "kind", [ANSWERS_ANYTHING, REFUSES_ANYTHING, HAS_NO_CLASS, IS_A_CLASS_THAT_HAS_NOTHING], ids=range(4)
)
def test_an_odd_object_among_a_models_modules_disturbs_no_other_model(scopes: Scopes, kind: str) -> None:
    scopes.make("one", own=f"{kind}\nimport email, sys\nsys.modules['odd'] = email.odd = odd")
    scopes.make("two")
    scopes.inside("one", "import own")
    ask = "import sys; result = [name in sys.modules for name in ('own', 'odd')]"
    try:
        for _ in range(2):
            assert scopes.inside("two", ask) == [False, False]
            assert scopes.outside(ask) == [False, False]
            assert scopes.inside("one", ask) == [True, True]
    finally:
        scopes.outside("import email; del email.odd")


def test_a_module_that_an_object_stands_for_decides_where_the_object_belongs(
    scopes: Scopes, tmp_path: Path
) -> None:
    """Libraries put an object in their own place that passes attributes on."""
    (folder := tmp_path / "environment").mkdir()
    (folder / "shown.py").write_text(
        "import sys\nclass Shown:\n    def __init__(self, inner): self.inner = inner\n"
        "    def __getattr__(self, name): return getattr(self.inner, name)\n"
        "sys.modules[__name__] = Shown(sys.modules[__name__])\n"
    )
    scopes.outside(f"import sys; sys.path.append({str(folder)!r})")
    try:
        scopes.make("one")
        scopes.inside("one", "import shown")
        assert scopes.outside("import sys; result = 'shown' in sys.modules") is True
    finally:
        scopes.outside(f"import sys; sys.path.remove({str(folder)!r}); del sys.modules['shown']")


@pytest.mark.parametrize("name", ["wave", "not_there", "email.mime"])
def test_a_module_that_a_model_forbids_itself_is_there_for_others(scopes: Scopes, name: str) -> None:
    scopes.outside("import email.mime, wave")
    scopes.make("one", own=f"import sys\nsys.modules[{name!r}] = None")
    scopes.inside("one", "import own")
    for _ in range(2):
        with pytest.raises(RemoteError, match=f"import of {name} halted"):
            scopes.inside("one", f"import {name}")
        there = scopes.outside(f"import sys; result = sys.modules.get({name!r}, 'missing') is not None")
        assert there is True


@pytest.mark.parametrize("value", ["None", "collections.namedtuple('Config', 'a')(1)"])
def test_an_object_that_is_no_module_among_a_models_modules_is_no_trace(scopes: Scopes, value: str) -> None:
    scopes.make("one", own=f"import collections, sys\nsys.modules['wave'] = {value}")
    scopes.outside("import wave")
    scopes.inside("one", "import own")
    assert scopes.outside("from interpool.native.inside import traces; result = traces.all_traces()") == []


def test_modules_that_a_module_of_the_environment_registers_by_hand_are_the_environments(
    scopes: Scopes, tmp_path: Path
) -> None:
    """As compiled code does with its submodules: they come once, with the first import."""
    (package := tmp_path / "environment" / "compiled_parts").mkdir(parents=True)
    (package / "__init__.py").write_text(
        "import sys, types\npart = sys.modules[f'{__name__}.part'] = types.ModuleType(f'{__name__}.part')\n"
    )
    scopes.outside(f"import sys; sys.path.append({str(package.parent)!r})")
    try:
        for name in ("one", "two"):
            scopes.make(name)
            assert scopes.inside(name, "import compiled_parts.part as part; result = part.__name__") == (
                "compiled_parts.part"
            )
    finally:
        scopes.outside(f"import sys; sys.path.remove({str(package.parent)!r})")


def test_a_submodule_that_a_library_registers_by_hand_is_the_environments(
    scopes: Scopes,
) -> None:
    """As ``xml.parsers.expat`` does, of which ``xml`` alone may be there before."""
    scopes.outside(
        "import sys\nfor name in [name for name in sys.modules if name.partition('.')[0] == 'xml']:\n"
        "    del sys.modules[name]"
    )
    scopes.make("first")
    scopes.make("second")
    scopes.inside("first", "import xml")
    own = "import xml.parsers.expat as e\nfrom interpool.native.inside.module_scope import is_own\n"
    assert scopes.inside("second", own + "result = is_own('xml.parsers.expat.model', e.model)") is False


def test_an_object_that_a_library_puts_in_its_own_place_is_the_environments(
    scopes: Scopes, tmp_path: Path
) -> None:
    """As transformers does with its lazy module."""
    (package := tmp_path / "environment" / "lazy_library").mkdir(parents=True)
    (package / "__init__.py").write_text(
        "import sys, types\nclass Lazy(types.ModuleType): pass\n"
        "def renew():\n    sys.modules[__name__] = Lazy(__name__)\n"
        "    sys.modules[__name__].__path__ = __path__\n"
    )
    (package / "part.py").write_text("")
    scopes.outside(f"import sys; sys.path.append({str(package.parent)!r}); import lazy_library")
    try:
        scopes.make("one")
        scopes.inside("one", "import lazy_library; lazy_library.renew(); import lazy_library.part")
        assert scopes.outside("import lazy_library; result = type(lazy_library).__name__") == "Lazy"
        assert scopes.outside("import sys; result = 'lazy_library.part' in sys.modules") is True
    finally:
        scopes.outside(f"import sys; sys.path.remove({str(package.parent)!r})")


def test_packages_that_a_model_loads_by_file_are_its_own_in_any_order(scopes: Scopes, tmp_path: Path) -> None:
    """As transformers loads the code that comes with a checkpoint: a module, and then its package."""
    (folder := tmp_path / "elsewhere").mkdir()
    (folder / "part.py").write_text("")
    scopes.make("one")
    source = f"""
        import importlib.util, sys, types
        spec = importlib.util.spec_from_file_location("dynamic.part", {str(folder / "part.py")!r})
        sys.modules["dynamic.part"] = importlib.util.module_from_spec(spec)
        sys.modules["dynamic"] = types.ModuleType("dynamic")
    """
    scopes.inside("one", source)
    assert scopes.outside("import sys; result = 'dynamic.part' in sys.modules") is False


def test_modules_that_libraries_compiled_by_cython_share_are_the_environments(scopes: Scopes) -> None:
    scopes.make("one")
    ask = "import sys; result = sorted(name for name in sys.modules if name.startswith('_cython_'))"
    shared = scopes.inside("one", f"import yaml._yaml; {ask}")
    assert shared
    assert scopes.outside(ask) == shared


def test_a_folder_of_data_does_not_hide_a_package_of_the_environment(scopes: Scopes, tmp_path: Path) -> None:
    (tmp_path / "one" / "email").mkdir(parents=True)
    scopes.make("one")
    ask = "import email.charset; result = email.__name__"
    assert scopes.inside("one", ask) == "email"


def test_folders_without_init_are_packages_of_the_scope(scopes: Scopes, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name / "plain").mkdir(parents=True)
        (tmp_path / name / "plain" / "part.py").write_text(f"X = {name!r}")
        scopes.make(name)
    ask = "import plain.part; result = plain.part.X"
    assert [scopes.inside(name, ask) for name in ("one", "two", "one")] == ["one", "two", "one"]


def test_a_module_that_interpool_has_imported_cannot_be_replaced(scopes: Scopes) -> None:
    with pytest.raises(RemoteError, match="replace the module 'torch'"):
        scopes.make("one", torch="")


@pytest.mark.parametrize(
    "imports",
    [
        "import utils; from pack import part",
        "utils = import_module('utils'); part = import_module('.part', 'pack')",
    ],
)
def test_a_models_thread_imports_its_own_modules_while_another_model_is_served(
    scopes: Scopes, imports: str
) -> None:
    thread = f"""
        import importlib, queue, threading
        from importlib import import_module
        asked, answers = queue.Queue(), queue.Queue()
        def run():
            while asked.get():
                try:
                    {imports}
                    answers.put([utils.NAME, part.NAME])
                except ImportError as error:
                    answers.put(str(error))
        def ask():
            asked.put(True)
            return answers.get()
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
    """
    for name in ("one", "two"):
        scopes.make(
            name,
            utils=f"NAME = {name!r}",
            **{"pack/__init__": ""},
            **{"pack/part": f"NAME = {name!r}"},
            background=thread,
        )
    start = "import background; import pack.part, utils; result = background.ask()"
    assert [scopes.inside(name, start) for name in ("one", "two")] == [["one", "one"], ["two", "two"]]
    keep = "import background, builtins; builtins.of_one = background.ask"
    scopes.inside("one", keep)
    assert scopes.inside("two", "import builtins; result = builtins.of_one()") == ["one", "one"]


def test_a_thread_of_a_model_gets_an_error_for_a_module_that_its_model_never_imported(scopes: Scopes) -> None:
    scopes.make(
        "one",
        utils="",
        background="import threading\ndef ask(): import utils\nthreading.Thread(target=str).start()",
    )
    scopes.make("two", utils="")
    scopes.inside("one", "import background, builtins; builtins.of_one = background.ask")
    with pytest.raises(RemoteError, match=r"'utils' was imported in a thread that a model in .*/one started"):
        scopes.inside("two", "import builtins; builtins.of_one()")


def test_a_models_thread_imports_all_names_of_its_own_module(scopes: Scopes) -> None:
    scopes.make(
        "one",
        utils="NAME = 'mine'",
        background="import threading, utils\n"
        "def ask():\n    names = {'__spec__': __spec__}\n    exec('from utils import *', names)\n"
        "    return names['NAME']\n"
        "threading.Thread(target=str).start()",
    )
    scopes.make("two", utils="NAME = 'not mine'")
    scopes.inside("one", "import background, builtins; builtins.of_one = background.ask")
    assert scopes.inside("two", "import builtins; result = builtins.of_one()") == "mine"


def test_a_models_thread_cannot_import_what_its_model_forbids(scopes: Scopes, environment: Path) -> None:
    scopes.outside("import colors")
    scopes.make(
        "one",
        background="import sys, threading\nsys.modules['colors'] = None\n"
        "def ask(): import colors\nthreading.Thread(target=str).start()",
    )
    scopes.make("two")
    scopes.inside("one", "import background, builtins; builtins.of_one = background.ask")
    with pytest.raises(RemoteError, match="'colors' was imported in a thread"):
        scopes.inside("two", "import builtins; builtins.of_one()")
    assert scopes.inside("two", "import colors; result = colors.NAME") == "theirs"


IMPORT_IN_A_THREAD = """
    import builtins, threading
    builtins.begun, builtins.go = threading.Event(), threading.Event()
    def run():
        try:
            import slow
        except Exception:
            pass
    builtins.slow_thread = threading.Thread(target=run)
    builtins.slow_thread.start()
    builtins.begun.wait()
"""
SLOW = "import builtins\nbuiltins.begun.set()\nbuiltins.go.wait()\n"
FINISH = "import builtins; builtins.go.set(); builtins.slow_thread.join()"


def test_a_module_whose_import_a_thread_did_not_finish_is_imported_anew(scopes: Scopes) -> None:
    scopes.make("one", slow=f"{SLOW}import sibling\nVALUE = 1", sibling="")
    scopes.inside("one", IMPORT_IN_A_THREAD)
    scopes.outside(FINISH)
    assert scopes.inside("one", "import slow; result = slow.VALUE") == 1


def test_a_module_of_the_environment_whose_import_fails_in_a_thread_is_gone(
    scopes: Scopes, environment: Path
) -> None:
    (environment / "slow.py").write_text(f"{SLOW}raise ImportError")
    scopes.make("one")
    scopes.make("two")
    scopes.inside("one", IMPORT_IN_A_THREAD)
    scopes.inside("two", FINISH)
    assert scopes.outside("import sys; result = 'slow' in sys.modules") is False


def test_a_models_thread_imports_from_pythons_own_library_at_any_time(scopes: Scopes) -> None:
    scopes.outside("import sys; sys.modules.pop('colorsys', None); sys.modules.pop('this', None)")
    ask = "import threading\ndef ask(): import colorsys; return colorsys.rgb_to_hsv(0, 0, 1)[2]\n"
    scopes.make("one", background=ask + "threading.Thread(target=str).start()")
    scopes.make("two", utils="")
    scopes.make("three", colorsys="rgb_to_hsv = None")
    keep = "import background, builtins; builtins.of_one = background.ask"
    scopes.inside("one", keep)
    with pytest.raises(RemoteError, match="'colorsys' was imported in a thread"):
        scopes.inside("three", "import builtins; builtins.of_one()")  # which calls another module so
    assert scopes.inside("two", "import builtins; result = builtins.of_one()") == 1


@pytest.fixture
def environment(tmp_path: Path, scopes: Scopes) -> Iterator[Path]:
    """A directory on the interpreter's own path, with a package whose parts use a module ``colors``."""
    where = tmp_path / "environment"
    (where / "drawing").mkdir(parents=True)
    (where / "colors.py").write_text("NAME = 'theirs'")
    (where / "drawing" / "__init__.py").write_text("")
    (where / "drawing" / "lines.py").write_text("import colors\ndef name(): return colors.NAME")
    (where / "drawing" / "shapes.py").write_text("from drawing.lines import name")
    (where / "drawing" / "plain.py").write_text("COUNT = 0")
    scopes.outside(f"import sys; sys.path.append({str(where)!r})")
    yield where
    scopes.close()
    scopes.outside(
        f"""
        import sys
        sys.path.remove({str(where)!r})
        for name in [name for name in sys.modules if name.partition(".")[0] in ("colors", "drawing")]:
            del sys.modules[name]
        """
    )


@pytest.mark.parametrize("first", ["own", "outside"])
def test_modules_of_the_environment_that_use_a_scopes_module_are_the_scopes(
    scopes: Scopes, environment: Path, first: str
) -> None:
    scopes.make("own", colors="NAME = 'mine'")
    scopes.make("without")
    ask = """
        from drawing import lines
        import drawing.plain, drawing.shapes
        drawing.plain.COUNT += 1
        result = [drawing.shapes.name(), drawing.lines.name(), lines.name()]
    """
    names = {"own": ["mine"] * 3, "without": ["theirs"] * 3, "outside": ["theirs"] * 3}
    order = [first, *names, *names]
    asked = [scopes.outside(ask) if name == "outside" else scopes.inside(name, ask) for name in order]
    assert asked == [names[name] for name in order]
    assert scopes.outside("import drawing.plain; result = drawing.plain.COUNT") == len(order)


def test_a_module_that_a_model_imports_anew_stays_the_new_one(scopes: Scopes) -> None:
    directory = scopes.make("one", rules="VALUE = 'old'")
    scopes.make("two")
    ask = "import rules; result = rules.VALUE"
    assert scopes.inside("one", ask) == "old"
    scopes.inside("two", "")
    (directory / "rules.py").write_text("VALUE = 'newer'")
    again = "import importlib, sys; importlib.invalidate_caches(); del sys.modules['rules']; " + ask
    assert scopes.inside("one", again) == "newer"
    scopes.inside("two", "")
    assert scopes.inside("one", ask) == "newer"


def test_a_module_that_takes_anothers_place_among_a_models_modules_is_its_own(scopes: Scopes) -> None:
    scopes.make("one", earlier="", later="")
    scopes.inside("one", "import earlier")
    scopes.outside("")
    scopes.inside("one", "import sys; del sys.modules['earlier']; import later")
    assert scopes.outside("import sys; result = 'later' in sys.modules") is False
    ask = "import sys; result = [name in sys.modules for name in ('earlier', 'later')]"
    assert scopes.inside("one", ask) == [False, True]


@pytest.mark.parametrize("then", ["", "import drawing.plain"])
def test_modules_of_the_environment_that_a_model_removes_are_there_for_others(
    scopes: Scopes, environment: Path, then: str
) -> None:
    ask = "import drawing.plain; import sys; result = id(sys.modules['drawing.plain'])"
    same = scopes.outside(ask)
    scopes.make("one")
    scopes.make("two")
    names = ("drawing", "drawing.plain")
    scopes.inside("one", f"import sys\nfor name in {names}: del sys.modules[name]\n{then}")
    assert scopes.inside("two", ask) == same
    assert scopes.outside(ask) == same
    assert scopes.outside("import drawing; result = id(drawing.plain)") == same


def test_a_closed_scopes_modules_are_gone(scopes: Scopes) -> None:
    scopes.make("one", utils="class OnlyHere: pass")
    scopes.inside("one", "import utils")
    scopes.close()
    left = """
        import gc
        gc.collect()
        result = [str(o) for o in gc.get_objects() if type(o) is type and o.__name__ == "OnlyHere"]
    """
    assert scopes.outside(left) == []
