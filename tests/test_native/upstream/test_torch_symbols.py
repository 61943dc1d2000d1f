"""What the interposer replaces is in the installed torch; doctor and C++ tests look for the other symbols."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from interpool.native import provision


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


@pytest.mark.long
def test_torch_and_libstdcxx_define_all_that_the_interposer_replaces() -> None:
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
