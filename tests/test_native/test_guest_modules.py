"""The names of interpool's own Python that C++ knows: in one header, and each of them exists."""

from __future__ import annotations

import importlib
import re

import pytest
from interpool_testing import Code
from paths import ROOT

from interpool.native import InterpreterSession

CPP = ROOT / "native/cpp"
HEADER = CPP / "seam/guest_modules.h"
TEXT = HEADER.read_text()
NAMES = re.findall(r'Name (k\w+)\{"([\w.]+)", "([\w.]+)"\};', TEXT)
MODULES = dict(re.findall(r'char\* (k\w+) = "([\w.]+)";', TEXT))


def test_every_constant_of_the_header_is_looked_at_here() -> None:
    assert 2 * len(NAMES) + len(MODULES) == TEXT.count('"') // 2 > 0
    assert set(MODULES) == {"kErrors", "kBuiltinModule", "kLoaderModule", "kCallInterrupted"}


@pytest.mark.parametrize(("module", "name"), [found[1:] for found in NAMES])
def test_what_cpp_names_exists_inside(session: InterpreterSession, module: str, name: str) -> None:
    first, *members = name.split(".")
    found = session.global_(module, first)
    for member in members:
        found = found.attr(member)
    assert Code(session, "is_callable = callable").call("is_callable", found)


def test_what_cpp_makes_inside_is_there(session: InterpreterSession) -> None:
    code = Code(session, "import importlib, sys")
    for module in (MODULES["kBuiltinModule"], MODULES["kLoaderModule"], MODULES["kErrors"]):
        assert session.global_(module, "__name__").to_value() == module
    parent, _, name = MODULES["kCallInterrupted"].rpartition(".")
    assert name == "CallInterrupted"
    assert code["importlib"].attr("import_module")(parent).attr("__name__").to_value() == parent


def test_what_the_host_shares_exists_there() -> None:
    assert importlib.import_module(MODULES["kErrors"]).InterpoolError
    ((module, name),) = {found[1:] for found in NAMES if found[0] == "kDump"}
    assert callable(getattr(importlib.import_module(module), name))


def test_no_other_file_spells_a_module_out() -> None:
    files = [path for path in CPP.rglob("*") if path.suffix in (".cc", ".h") and path != HEADER]
    assert len(files) > 50
    spelled = re.compile(r'"(_interpool|interpool\.(native|handler|archiver_ext))[\w.]*"')
    assert [path.name for path in files if spelled.search(path.read_text())] == []
