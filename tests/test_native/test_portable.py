"""Wheels run beside older systems' libraries than those that they are built with (native/cpp/portable)."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection


def libraries() -> list[Path]:
    files = metadata.files("interpool") or []
    return [Path(str(file.locate())) for file in files if file.name.endswith(".so")]


@pytest.mark.parametrize("library", libraries(), ids=lambda library: library.name)
def test_no_library_looks_at_files_by_std_filesystem(library: Path) -> None:
    """GCC 8's libstdc++ has none of it: wheels bring the part along that deals with paths alone."""
    with library.open("rb") as file:
        symbols = ELFFile(file).get_section_by_name(".dynsym")
        assert isinstance(symbols, SymbolTableSection)
        taken = {each.name for each in symbols.iter_symbols() if each["st_shndx"] == "SHN_UNDEF"}
    beside_paths = re.compile(r"_ZNK?St10filesystem(?!7__cxx114path)")
    assert {name for name in taken if beside_paths.match(name)} == set()
