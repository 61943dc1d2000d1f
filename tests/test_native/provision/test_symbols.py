"""Names of native functions, for gdb and perf: in what is installed, and in the private copies of slots."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from interpool.native import _native, provision

FUNCTION = 2  # STT_FUNC


def functions(path: str | Path) -> dict[bytes, tuple[int, str]]:
    """Address and section of every function in ``.symtab``, by its mangled name."""
    with open(path, "rb") as file:
        elf = ELFFile(file)
        table, strings = elf.get_section_by_name(".symtab"), elf.get_section_by_name(".strtab")
        assert table is not None, f"{path} was stripped"
        names = strings.data()
        sections = [(s.name, s["sh_addr"], s["sh_addr"] + s["sh_size"]) for s in elf.iter_sections()]
        found = {}
        # Elf64_Sym: name, info, other, section, value, size
        for name, info, _, section, value, _ in struct.iter_unpack("<IBBHQQ", table.data()):
            if info & 15 == FUNCTION and 0 < section < len(sections):
                label, start, end = sections[section]
                assert start <= value < end
                found[names[name : names.index(b"\0", name)]] = (value, label)
    return found


def installed() -> dict[str, Path]:
    libraries = provision.interposer_path().parent
    return {
        # A function of each that it does not export: it is in .symtab, or nowhere.
        "N9interpool12_GLOBAL__N_16Router": libraries / "libinterpool_interpose.so",
        "N9interpool12_GLOBAL__N_117PythonInterpreter": libraries / "libinterpool_slot.so",
        "N9interpool11FrameReader": libraries.parent / "libinterpool.so",
        "N12_GLOBAL__N_1": Path(_native.__file__),
    }


@pytest.mark.parametrize("name", list(installed()))
def test_installed_libraries_name_their_functions(name: str) -> None:
    assert any(name.encode() in function for function in functions(installed()[name]))


def originals() -> list[Path]:
    return [installed()["N9interpool12_GLOBAL__N_117PythonInterpreter"], provision.libpython_path()]


@pytest.mark.parametrize("which", [0, 1], ids=["libinterpool_slot", "libpython"])
def test_private_copies_keep_the_names_and_addresses_of_functions(which: int) -> None:
    original = originals()[which]
    with open(original, "rb") as file:
        kept = ELFFile(file).get_section_by_name(".symtab") is not None
    copy = provision.private_copy(str(original), 1)[-1]
    assert Path(copy).name == original.name  # what gdb and py-spy look for
    if kept:  # some systems' libpython comes without
        assert functions(copy) == functions(original)
