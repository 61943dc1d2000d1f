"""Reads, and changes in place, the required parts of a shared object.

It reads only the dynamic section and the dynamic symbols, with mmap and ``struct``. The analysis must not
take seconds, and libtorch_cpu has 5 MB of symbol names.
"""

from __future__ import annotations

import mmap
import struct
from typing import TYPE_CHECKING, NamedTuple

from interpool.native.errors import ProvisioningError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType

_SHT_DYNAMIC = 6
_SHT_DYNSYM = 11

_DT_NULL = 0
DT_NEEDED = 1
DT_SONAME = 14
DT_RPATH = 15
DT_RUNPATH = 29

STB_GLOBAL = 1
STB_WEAK = 2
STB_GNU_UNIQUE = 10
SHN_UNDEF = 0

_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_DYNAMIC = struct.Struct("<qQ")


class Symbol(NamedTuple):
    """One dynamic symbol; ``offset`` is the file offset of its entry, in bytes."""

    name: bytes
    binding: int
    kind: int
    defined: bool
    offset: int


class SharedObject:
    """A 64-bit little-endian ELF shared object, opened for reading or for changes in place.

    Args:
        path: of the file.
        writable: whether it may be changed in place.

    Raises:
        ProvisioningError: the file cannot be read or is no such object; names the file.
    """

    def __init__(self, path: str | Path, *, writable: bool = False) -> None:
        self.path = str(path)
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        try:
            with open(path, "r+b" if writable else "rb") as file:
                self._data = mmap.mmap(file.fileno(), 0, access=access)
        except OSError as error:
            raise ProvisioningError(f"cannot read {self.path}: {error.strerror}") from error
        except ValueError as error:
            raise ProvisioningError(f"{self.path} is empty, not a shared library") from error
        try:
            self._locate()
        except ProvisioningError:
            self._data.close()
            raise
        except (struct.error, IndexError) as error:
            self._data.close()
            raise ProvisioningError(f"{self.path} is truncated or damaged") from error

    def __enter__(self) -> SharedObject:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._data.close()

    def _locate(self) -> None:
        data = self._data
        if data[:4] != b"\x7fELF":
            raise ProvisioningError(f"{self.path} is not an ELF file")
        if data[4:6] != b"\x02\x01":
            raise ProvisioningError(f"{self.path} is not a 64-bit little-endian ELF file")
        (table,) = struct.unpack_from("<Q", data, 40)
        size, count = struct.unpack_from("<HH", data, 58)
        sections = [_SECTION.unpack_from(data, table + i * size) for i in range(count)]
        self._dynamic = self._symbols = (0, 0)
        strings = -1
        for _, kind, _, _, offset, length, link, _, _, _ in sections:
            if kind not in (_SHT_DYNAMIC, _SHT_DYNSYM):
                continue
            if kind == _SHT_DYNAMIC:
                self._dynamic = (offset, length)
            else:
                self._symbols = (offset, length)
            strings = link
        if self._dynamic[1] == 0 or strings < 0:
            raise ProvisioningError(f"{self.path} is not a shared library: no dynamic section")
        self._strings = (sections[strings][4], sections[strings][5])
        for offset, length in (self._dynamic, self._symbols, self._strings):
            if offset + length > len(data):
                raise ProvisioningError(f"{self.path} is truncated or damaged")

    def _string(self, index: int) -> bytes:
        start = self._strings[0] + index
        end = self._data.find(b"\0", start, sum(self._strings))
        if end < 0:
            raise ProvisioningError(f"{self.path} is truncated or damaged")
        return self._data[start:end]

    def _entries(self, tag: int) -> Iterator[tuple[int, int]]:
        """Yield file offset and value of every dynamic entry with ``tag``."""
        start, length = self._dynamic
        for offset in range(start, start + length - _DYNAMIC.size + 1, _DYNAMIC.size):
            found, value = _DYNAMIC.unpack_from(self._data, offset)
            if found == _DT_NULL:
                return
            if found == tag:
                yield offset, value

    def strings_of(self, tag: int) -> list[str]:
        """Return the strings of all dynamic entries with ``tag`` (DT_NEEDED and the like), in order."""
        return [self._string(value).decode(errors="surrogateescape") for _, value in self._entries(tag)]

    def symbols(self) -> Iterator[Symbol]:
        """Yield all named dynamic symbols."""
        start, length = self._symbols
        names = self._data[self._strings[0] : sum(self._strings)]
        table = self._data[start : start + length - length % _SYMBOL.size]
        offset = start
        for name, info, _, section, _, _ in _SYMBOL.iter_unpack(table):
            if name:
                end = names.find(b"\0", name)
                yield Symbol(names[name:end], info >> 4, info & 15, section != SHN_UNDEF, offset)
            offset += _SYMBOL.size

    def mentions(self, text: bytes) -> bool:
        """Return whether ``text`` occurs among the dynamic strings (a quick first test)."""
        return self._data.find(text, self._strings[0], sum(self._strings)) >= 0

    def string_offsets(self, text: bytes) -> list[int]:
        """Return file offsets, in bytes, of every occurrence of ``text`` among the dynamic strings."""
        found = []
        end = sum(self._strings)
        at = self._data.find(text, self._strings[0], end)
        while at >= 0:
            found.append(at)
            at = self._data.find(text, at + len(text), end)
        return found

    # Changes in place; sizes and offsets stay the same.

    def set_binding(self, symbol: Symbol, binding: int) -> None:
        """Change the binding of a symbol.

        Args:
            symbol: one of ``symbols``.
            binding: the new binding, such as STB_WEAK.
        """
        self._data[symbol.offset + 4] = binding << 4 | symbol.kind

    def undefine(self, symbol: Symbol) -> None:
        """Turn a definition into an import of the same name; the loader skips it in hash tables."""
        struct.pack_into("<HQQ", self._data, symbol.offset + 6, SHN_UNDEF, 0, 0)

    def order_needed(self, first: list[str]) -> None:
        """Move the DT_NEEDED entries named in ``first`` to the front, in that order."""
        entries = list(self._entries(DT_NEEDED))
        rank = {name: place for place, name in enumerate(first)}
        names = self.strings_of(DT_NEEDED)
        places = sorted(range(len(names)), key=lambda i: rank.get(names[i], len(rank)))
        for (offset, _), place in zip(entries, places, strict=True):
            _DYNAMIC.pack_into(self._data, offset, DT_NEEDED, entries[place][1])
