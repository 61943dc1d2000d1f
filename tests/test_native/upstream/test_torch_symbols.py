"""Torch's private symbols that C++ relies on are in the installed torch, and so is what is replaced."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from paths import ROOT

from interpool.native import provision

HEADER = ROOT / "native/cpp/upstream/torch_symbols.h"
LIBRARIES = {"kC10": "libc10.so", "kTorchCpu": "libtorch_cpu.so", "kTorchPython": "libtorch_python.so"}
ROWS = re.findall(
    r'SYMBOL\((\w+), (k\w+), (k\w+), \\\n\s*(?:"(\w+)"|(INTERPOOL_\w+(?:\("C1"\))?)), \\\n',
    HEADER.read_text(),
)


@cache
def defined(path: Path) -> frozenset[str]:
    """The names that a library defines for others."""
    with path.open("rb") as file:
        table = ELFFile(file).get_section_by_name(".dynsym")
        return frozenset(symbol.name for symbol in table.iter_symbols() if symbol["st_shndx"] != "SHN_UNDEF")


def stock(name: str) -> frozenset[str]:
    folder = provision.torch_libraries()
    assert folder is not None
    return defined(folder / name)


def test_the_table_is_read_whole() -> None:
    assert len(ROWS) == HEADER.read_text().count("  SYMBOL(") > 30


@pytest.mark.parametrize(
    ("library", "name"), [(row[1], row[3]) for row in ROWS if row[2] != "kOptional" and row[3]]
)
def test_a_symbol_is_in_its_library(library: str, name: str) -> None:
    assert name in stock(LIBRARIES[library])


def test_what_the_interposer_replaces_is_what_torch_and_libstdcxx_define() -> None:
    prefix = provision.SYMBOL_PREFIX
    own = defined(provision.interposer_path())
    replaced = {name.removeprefix(prefix) for name in own if name.startswith(f"{prefix}_Z")}
    assert "_ZN5torch6detail19getTorchApiFunctionERKN3c1014OperatorHandleE" in replaced
    torchs = stock("libc10.so") | stock("libtorch_cpu.so") | stock("libtorch_python.so")
    libraries = {
        Path(line.split()[-1]) for line in Path("/proc/self/maps").read_text().splitlines() if "/" in line
    }
    (cxx,) = (path for path in libraries if path.name.startswith("libstdc++.so.6"))
    assert sorted(replaced - torchs - defined(cxx)) == []
