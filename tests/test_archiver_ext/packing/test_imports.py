from __future__ import annotations

import sys

import pytest

from interpool.archiver_ext.packing.observe.computed_imports import ComputedImports
from interpool.archiver_ext.packing.observe.imports import find_imports

SOURCE = """
import a, b.c
from d import e, f
from . import g
from ..h import i
from j import *
if TYPE_CHECKING:
    import k
try:
    import l
except ImportError:
    l = None
if sys.version_info < (3, 11) and not FLAG:
    import r
elif FLAG:
    import s
if __name__ == "__main__":
    import t
if FLAG:
    import u
with contextlib.suppress(ImportError), open(here):
    import v
with open(here):
    import w
def late():
    if sys.platform == "win32":
        import msvcrt
    import m
    import importlib
    importlib.import_module("n.o")
    importlib.import_module(name)
    __import__("p.q")
"""


def test_every_import_is_found_with_its_line() -> None:
    found = [
        (site.modules, site.line, site.guarded, site.dynamic, site.lazy)
        for site in find_imports(SOURCE, "pkg.sub.mod", is_package=False)
    ]
    assert found == [
        (("a",), 2, False, False, False),
        (("b.c",), 2, False, False, False),
        (("d.e", "d"), 3, False, False, False),
        (("d.f", "d"), 3, False, False, False),
        (("pkg.sub.g", "pkg.sub"), 4, False, False, False),
        (("pkg.h.i", "pkg.h"), 5, False, False, False),
        (("j",), 6, False, False, False),
        (("k",), 8, True, False, False),
        (("l",), 10, True, False, False),
        (("r",), 14, True, False, False),
        (("s",), 16, True, False, False),
        (("t",), 18, True, False, False),
        (("u",), 20, False, False, False),
        (("v",), 22, True, False, False),
        (("w",), 24, False, False, False),
        (("msvcrt",), 27, True, False, True),
        (("m",), 28, False, False, True),
        (("importlib",), 29, False, False, True),
        (("n.o",), 30, False, True, True),
        (("p.q",), 32, False, False, True),
    ]


def test_relative_import_in_a_package_starts_at_the_package() -> None:
    (site,) = find_imports("from . import x", "pkg.sub", is_package=True)
    assert site.modules == ("pkg.sub.x", "pkg.sub")


@pytest.mark.parametrize(
    ("call", "module", "is_package", "found"),
    [
        ('import_module(".b", __package__)', "pkg.a", False, [("pkg.b",)]),
        ('import_module("..b.c", package=__package__)', "pkg.sub", True, [("pkg.b.c",)]),
        ('import_module(".b", __name__)', "pkg.sub", True, [("pkg.sub.b",)]),
        ('import_module(".b", "other.sub")', "pkg.a", False, [("other.sub.b",)]),
        ('import_module(".b", __name__)', "pkg.a", False, []),
        ('import_module(".b", package)', "pkg.a", False, []),
        ('import_module(".b")', "pkg.a", False, []),
        ('import_module("..b", __package__)', "pkg.a", False, []),
        ('import_module(".b", __package__)', "a", False, []),
    ],
)
def test_a_relative_name_is_followed_if_its_package_is_known(
    call: str, module: str, is_package: bool, found: list[tuple[str, ...]]
) -> None:
    assert [site.modules for site in find_imports(call, module, is_package)] == found


def test_source_that_does_not_parse_has_no_imports() -> None:
    assert find_imports("import a\nx = = 1", "m", is_package=False) == []


LAZY = """
lazy import wave
lazy from tabnanny import check
wave, check
class Reader:
    opened = wave
__import__("mailbox")
"""
has_lazy_imports = pytest.mark.skipif(sys.version_info < (3, 15), reason="lazy imports came with Python 3.15")


@has_lazy_imports
def test_a_lazy_import_does_not_run_when_its_module_is_imported() -> None:
    found = {site.modules[0]: site.lazy for site in find_imports(f"import re{LAZY}", "mod", is_package=False)}
    assert found == {"re": False, "wave": True, "tabnanny.check": True, "mailbox": False}


@has_lazy_imports
def test_the_first_use_of_a_lazy_import_is_no_computed_import() -> None:
    computed = ComputedImports()
    with computed.noting():
        exec(LAZY, {"__name__": "mod"})
    assert computed.by["mod"] == {"mailbox": 7}
