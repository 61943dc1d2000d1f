"""Code in an archive runs as it did in its folder: what torch.package alone would break."""

from __future__ import annotations

import copyreg
import gc
import importlib.metadata
import itertools
import json
import sys
import traceback
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from archives import add_members, build_package

from interpool.native.archive.importer import HermeticImporter

Open = Callable[..., HermeticImporter]
STANDARD = (
    "collections", "concurrent.**", "copy", "copyreg", "ctypes", "dataclasses", "enum", "importlib",
    "importlib.**", "inspect", "io", "os", "os.**", "pathlib", "pickle", "pkgutil", "sys", "threading",
    "time", "types", "typing", "json",
)  # fmt: skip


def close(importer: Callable[[], HermeticImporter | None]) -> None:
    if alive := importer():
        alive.close()


@pytest.fixture
def open_archive(tmp_path: Path) -> Iterator[Open]:
    """Packs modules with torch.package alone, and opens that; ``made`` is what ``pkg.main:make`` made."""
    numbers = itertools.count()
    with ExitStack() as stack:

        def build(modules: dict[str, str]) -> HermeticImporter:
            path = build_package(
                tmp_path / f"m{next(numbers)}.pt",
                {"pkg/__init__.py": "", **modules},
                "pkg.main:make",
                extern=STANDARD,
            )
            importer = HermeticImporter(torch._C.PyTorchFileReader(str(path)), str(path), None)
            stack.callback(close, weakref.ref(importer))
            return importer

        yield build


def made(importer: HermeticImporter) -> Any:
    return importer.load_pickle("model", "model.pkl")


# ---- sys.modules ---------------------------------------------------------------------------

BY_MODULE = """
    from __future__ import annotations
    import collections, copyreg, dataclasses, enum, importlib.resources, inspect, pickle, pkgutil, sys, typing

    @dataclasses.dataclass
    class Settings:
        size: int
        names: typing.ClassVar[list[str]] = []
        extra: dataclasses.InitVar[int] = 0

    Point = collections.namedtuple("Point", "x y")

    class Typed(typing.NamedTuple):
        name: str

    class Colour(enum.Enum):
        RED = 1

    class Flags(enum.Flag):
        A = 1
        B = 2

    class Reduced:
        def __init__(self, value): self.value = value
        def __reduce__(self): return remake, (self.value,)

    def remake(value): return Reduced(value)

    class Registered: pass
    copyreg.pickle(Registered, lambda _: (Registered, ()))

    class Make:
        def __init__(self):
            self.held = [Settings(1), Point(1, 2), Typed("a"), Colour.RED, Flags.A | Flags.B, Reduced(7)]

        def facts(self):
            again = pickle.loads(pickle.dumps(self.held + [Registered()]))
            return {
                "fields": [field.name for field in dataclasses.fields(Settings)],
                "hints": typing.get_type_hints(Settings)["size"] is int,
                "again": again[:5] == self.held[:5] and again[5].value == 7 and type(again[6]) is Registered,
                "module": sys.modules[type(self).__module__] is sys.modules[__name__],
                "itself": sys.modules[__name__].Make is type(self),
                "source": inspect.getsource(Reduced).startswith("class Reduced"),
                "found": inspect.getmodule(Settings).__name__ == __name__,
            }

    def make():
        return Make()
"""


def test_code_that_looks_up_its_own_module_finds_it(open_archive: Open) -> None:
    importer = open_archive({"pkg/main.py": BY_MODULE})
    facts = made(importer).facts()
    assert facts == {**dict.fromkeys(facts, True), "fields": ["size"]}


def test_nothing_of_a_closed_archive_is_kept_alive(open_archive: Open) -> None:
    table = dict(copyreg.dispatch_table)
    importer = open_archive({"pkg/main.py": BY_MODULE})
    model = made(importer)
    assert model.facts()
    try:
        model.missing()
    except AttributeError as error:
        traceback.format_exception(error)
    watched: list[weakref.ref[Any]] = [
        weakref.ref(importer),
        weakref.ref(type(model)),
        weakref.ref(sys.modules[type(model).__module__]),
    ]
    importer.close()
    del importer, model
    # copyreg's table is the process's.
    copyreg.dispatch_table.clear()
    copyreg.dispatch_table.update(table)
    gc.collect()
    assert [each() for each in watched] == [None] * 3


# ---- a failed import -------------------------------------------------------------------------


def test_module_that_failed_to_import_is_tried_again_and_not_half_there(open_archive: Open) -> None:
    importer = open_archive(
        {
            "pkg/flaky.py": """
                import os
                BEFORE = 1
                if os.environ.get("PKG_FAILS"):
                    raise ImportError("not now")
                AFTER = 2
                """,
            "pkg/main.py": """
                import os
                import pkg
                def attempt():
                    try:
                        from pkg import flaky
                        return flaky.AFTER
                    except ImportError as error:
                        return f"{error}, {hasattr(pkg, 'flaky')}"
                class Make:
                    def attempts(self):
                        os.environ["PKG_FAILS"] = "1"
                        answers = [attempt(), attempt()]
                        del os.environ["PKG_FAILS"]
                        return [*answers, attempt()]
                def make(): return Make()
                """,
        }
    )
    assert made(importer).attempts() == ["not now, False", "not now, False", 2]


def test_module_that_another_thread_imports_is_waited_for(open_archive: Open) -> None:
    importer = open_archive(
        {
            "pkg/slow.py": """
                import time
                time.sleep(0.2)
                from pkg import around
                VALUE = 1
                """,
            "pkg/around.py": "from pkg import slow",
            "pkg/main.py": """
                from concurrent.futures import ThreadPoolExecutor
                def get(_):
                    import pkg.slow
                    return pkg.slow.VALUE
                class Make:
                    def together(self):
                        with ThreadPoolExecutor(4) as threads:
                            return list(threads.map(get, range(4)))
                def make(): return Make()
                """,
        }
    )
    assert made(importer).together() == [1] * 4


# While the archive is made, no other code imports it.
MEETS = """
    from pkg.meeting import both
    if __name__.startswith("<torch_package_"):
        both.wait()
    import pkg.{other}
    VALUE = {value}
"""


def test_modules_that_two_threads_import_and_that_import_each_other_are_both_there(
    open_archive: Open,
) -> None:
    importer = open_archive(
        {
            "pkg/meeting.py": "import threading\nboth = threading.Barrier(2, timeout=60)",
            "pkg/one.py": MEETS.format(other="other", value=1),
            "pkg/other.py": MEETS.format(other="one", value=2),
            "pkg/main.py": """
                from concurrent.futures import ThreadPoolExecutor
                import pkg.meeting
                def one():
                    import pkg.one
                    return pkg.one.VALUE
                def other():
                    import pkg.other
                    return pkg.other.VALUE
                class Make:
                    def together(self):
                        with ThreadPoolExecutor(2) as threads:
                            works = [threads.submit(each) for each in (one, other)]
                            return [work.result(60) for work in works]
                def make(): return Make()
                """,
        }
    )
    assert made(importer).together() == [1, 2]


# ---- importlib -------------------------------------------------------------------------------

BY_NAME = """
    import importlib
    import importlib.util
    import json
    from importlib import import_module
    from importlib.util import find_spec
    import pkg.deep.other

    class Make:
        def modules(self):
            found = [
                importlib.import_module("pkg.deep.other"),
                import_module(".deep.other", __package__),
                import_module("..deep.other", "pkg.deep"),
                import_module(__name__.replace("main", "deep.other")),
                import_module(f"{__package__}.deep.other"),
                __import__("pkg.deep.other", fromlist=["x"]),
                __import__(pkg.deep.other.__name__, fromlist=["x"]),
            ]
            return [module is pkg.deep.other for module in found]

        def outside(self):
            return import_module("json").dumps([importlib.metadata.version("torch")])

        def missing(self):
            return import_module("pkg.missing")

        def siblings(self):
            import pkgutil
            import pkg
            found = [(info.name, info.ispkg) for info in pkgutil.iter_modules(pkg.__path__, "pkg.")]
            outside = {info.name for info in pkgutil.iter_modules()}
            return [found, "json" in outside, "pkg" in outside]

        def walked(self):
            import pkgutil
            import pkg
            skipped = []
            found = pkgutil.walk_packages(pkg.__path__, "pkg.", skipped.append)
            names = [(info.name, info.ispkg) for info in found]
            outside = {info.name for info in pkgutil.walk_packages(json.__path__, "json.")}
            return [names, skipped, "json.decoder" in outside]

        def specs(self):
            names = ("pkg.deep.other", "pkg.untouched", "pkg.missing", "json", "no_such_module")
            return [find_spec(name) is not None for name in names] + [find_spec(".deep", "pkg").name]

    def make():
        return Make()
"""


@pytest.fixture
def by_name(open_archive: Open) -> Any:
    return made(
        open_archive(
            {
                "pkg/main.py": BY_NAME,
                "pkg/deep/__init__.py": "",
                "pkg/deep/other.py": "",
            }
        )
    )


def test_import_module_finds_the_archives_modules_and_others_where_they_are(by_name: Any) -> None:
    assert by_name.modules() == [True] * 7
    assert json.loads(by_name.outside()) == [importlib.metadata.version("torch")]
    with pytest.raises(ModuleNotFoundError, match=r"pkg\.missing"):
        by_name.missing()


def test_imports_of_a_librarys_c_code_need_not_be_in_the_archive(open_archive: Open) -> None:
    """Such as numpy's import of os, in the name of the code that called it."""
    source = r"""
        import pickle
        class Make:
            def load(self): return pickle.loads(b"cxdrlib_of_nobody\nname\n.")
            def call(self): return pickle.loads(b"ccolorsys\nrgb_to_hsv\n.")
        def make(): return Make()
        """
    model = made(open_archive({"pkg/main.py": source}))
    assert model.call()(0, 0, 0) == (0.0, 0.0, 0)
    with pytest.raises(ModuleNotFoundError, match="No module named 'xdrlib_of_nobody'"):
        model.load()


def test_modules_of_a_package_are_listed(by_name: Any) -> None:
    assert by_name.siblings() == [[("pkg.deep", True), ("pkg.main", False)], True, False]


def test_packages_in_a_package_are_walked_too(by_name: Any) -> None:
    inside = [("pkg.deep", True), ("pkg.deep.other", False), ("pkg.main", False)]
    assert by_name.walked() == [inside, [], True]


def test_find_spec_finds_what_the_archive_holds(by_name: Any) -> None:
    assert by_name.specs() == [True, False, False, True, False, "pkg.deep"]


def test_importlib_of_other_code_stays_as_it_was(by_name: Any) -> None:
    by_name.modules()
    with pytest.raises(ModuleNotFoundError):
        __import__("importlib").import_module("pkg.deep.other")


# ---- resources -------------------------------------------------------------------------------

RESOURCES = """
    import importlib.resources
    import pkgutil
    from importlib import resources
    from importlib.resources import as_file, files, open_text, read_binary, read_text
    import model_files

    class Make:
        def read(self):
            anchors = ("model_files", model_files, model_files.__name__)
            found = [files(anchor).joinpath("labels.txt").read_text(encoding="utf-8") for anchor in anchors]
            found.append((importlib.resources.files("model_files") / "vocab" / "a.txt").read_text())
            found.append(read_text("model_files", "labels.txt"))
            found.append(read_binary("model_files", "labels.txt").decode())
            found.append(pkgutil.get_data("model_files", "vocab/a.txt").decode())
            found.append(pkgutil.get_data(model_files.__name__, "labels.txt").decode())
            with open_text("model_files", "labels.txt") as file:
                found.append(file.readline())
            with as_file(files("model_files") / "labels.txt") as path:
                found.append(path.read_text())
            return found

        def look(self):
            root = files("model_files")
            return [
                sorted(each.name for each in root.iterdir()), root.is_dir(), root.joinpath("vocab").is_dir(),
                (root / "labels.txt").is_file(), (root / "missing").is_file(), (root / "missing").is_dir(),
                resources.is_resource("model_files", "labels.txt"),
            ]

        def missing(self):
            return files("model_files").joinpath("missing").read_bytes()

    def make():
        return Make()
"""


@pytest.fixture
def resources(tmp_path: Path) -> Iterator[Any]:
    yield from resources_read_by(RESOURCES, tmp_path)


def resources_read_by(code: str, tmp_path: Path) -> Iterator[Any]:
    plain = build_package(
        tmp_path / "plain.pt",
        {"pkg/__init__.py": "", "pkg/main.py": code, "model_files/__init__.py": ""},
        "pkg.main:make",
        extern=[*STANDARD, "importlib_resources"],
    )
    path = add_members(plain, {"model_files/labels.txt": b"cat\n", "model_files/vocab/a.txt": b"a"})
    importer = HermeticImporter(torch._C.PyTorchFileReader(str(path)), str(path), None)
    yield made(importer)
    importer.close()


@pytest.mark.filterwarnings("ignore:.* is deprecated. Use files")
def test_resources_are_read_in_every_way_that_python_has(resources: Any) -> None:
    assert resources.read() == [
        "cat\n", "cat\n", "cat\n", "a", "cat\n", "cat\n", "a", "cat\n", "cat\n", "cat\n",
    ]  # fmt: skip


@pytest.mark.filterwarnings("ignore:.* is deprecated. Use files")
def test_resources_are_looked_through(resources: Any) -> None:
    assert resources.look() == [["__init__.py", "labels.txt", "vocab"], True, True, True, False, False, True]
    with pytest.raises(FileNotFoundError, match="missing"):
        resources.missing()


BACKPORT = """
    import importlib.resources
    import importlib_resources
    import model_files
    from importlib_resources import as_file, files

    class Make:
        def read(self):
            anchors = ("model_files", model_files, model_files.__name__)
            found = [files(anchor).joinpath("labels.txt").read_text() for anchor in anchors]
            with as_file(importlib_resources.files("model_files") / "labels.txt") as path:
                found.append(path.read_text())
            return [*found, importlib_resources.files().joinpath("main.py").is_file()]

    def make():
        return Make()
"""


def test_the_backport_of_resources_reads_them_too(tmp_path: Path) -> None:
    (make,) = resources_read_by(BACKPORT, tmp_path)
    assert make.read() == ["cat\n", "cat\n", "cat\n", "cat\n", True]


def test_module_that_puts_another_object_in_its_place_is_replaced(open_archive: Open) -> None:
    importer = open_archive(
        {
            "pkg/lazy.py": """
                import sys, types
                class Lazy(types.ModuleType):
                    __path__, __file__ = [], __file__
                    def __getattr__(self, name):
                        if name.startswith("_"):
                            raise AttributeError(name)
                        return f"made {name}"
                sys.modules[__name__] = Lazy(__name__)
                """,
            "pkg/main.py": """
                import pkg.lazy
                from pkg import lazy
                from pkg.lazy import anything
                class Make:
                    def seen(self): return [anything, lazy.b, pkg.lazy.c]
                def make(): return Make()
                """,
        }
    )
    assert made(importer).seen() == ["made anything", "made b", "made c"]
