"""Archives whose zip is not what a packer writes."""

from __future__ import annotations

import struct
import unicodedata
from collections.abc import Callable
from dataclasses import replace

from test_native.hostile.cases import MANIFEST, SOURCE, STORAGE, Case, Good
from test_native.hostile.zips import UTF8, Member, end64, zip_of


def _named(name: str | bytes, **central: int | bytes) -> Callable[[Good], bytes]:
    return lambda good: zip_of([*good.sealed(), Member(name, b"raise SystemExit", central=central)])


def _spoiled(which: str, spoil: Callable[[Member], Member]) -> Callable[[Good], bytes]:
    """With one of the good archive's members changed."""
    return lambda good: zip_of(
        [spoil(each) if each.name == f"archive/{which}" else each for each in good.sealed()]
    )


def _central(which: str, **fields: int | bytes) -> Callable[[Good], bytes]:
    return _spoiled(which, lambda member: replace(member, central=fields))


def _local(which: str, **fields: int | bytes) -> Callable[[Good], bytes]:
    return _spoiled(which, lambda member: replace(member, local=fields))


def _content(which: str, content: bytes) -> Callable[[Good], bytes]:
    return lambda good: good.having({which: content}).bytes()


def _twice(good: Good) -> bytes:
    return zip_of([*good.sealed(), Member(f"archive/{SOURCE}", b"raise SystemExit")])


def _many(said: int = 100_000, *, wide: bool = True) -> bytes:
    """100,000 empty files, written at once."""
    names = [b"archive/%06d" % number for number in range(100_000)]
    local = zip_of([Member(names[0], b"")])[:30]
    entry = zip_of([Member(names[0], b"")])[30 + len(names[0]) :][:42]
    step = len(local) + len(names[0])
    contents = b"".join(local + name for name in names)
    directory = b"".join(entry + struct.pack("<I", number * step) + name for number, name in enumerate(names))
    at = len(contents) + len(directory)
    end = end64(said, len(directory), len(contents), at) if wide else b""
    count = 0xFFFF if wide else said & 0xFFFF
    return (
        contents
        + directory
        + end
        + struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, count, count, len(directory), len(contents), 0)
    )


def _bomb(good: Good) -> bytes:
    return zip_of([*good.sealed(), Member("archive/zeros.txt", bytes(32 << 20), deflated=True)])


def _many_bombs(good: Good) -> bytes:
    bomb = Member("", bytes(1 << 20), deflated=True)
    return zip_of([*good.sealed(), *(replace(bomb, name=f"archive/{number}.txt") for number in range(1100))])


def _same_place(good: Good) -> bytes:
    """Fifield's bomb: members whose bytes are those of all that follow."""
    members = good.sealed()
    inner = zip_of([Member("archive/b.txt", b"x" * 1000)])[:-22]
    start = _offset(members)
    first = Member("archive/a.txt", inner)
    second = Member("archive/b.txt", b"x" * 1000, central={"offset": start + 30 + len("archive/a.txt")})
    data = bytearray(zip_of([*members, first]))
    return _with_directory(data, [*members, first], second)


def _offset(members: list[Member]) -> int:
    data = zip_of(members)
    return int(struct.unpack_from("<I", data, len(data) - 6)[0])


def _with_directory(data: bytearray, members: list[Member], further: Member) -> bytes:
    """A zip with one more entry in its directory and nothing else more."""
    entry = zip_of([further])
    size, offset = struct.unpack_from("<2I", entry, len(entry) - 10)
    at = len(data) - 22
    data[at:at] = entry[offset : offset + size]
    count = len(members) + 1
    old_size, old_offset = struct.unpack_from("<2I", data, len(data) - 10)
    struct.pack_into("<2H2I", data, len(data) - 14, count, count, old_size + size, old_offset)
    return bytes(data)


def _alias(good: Good) -> bytes:
    """A second name for the bytes of the first member."""
    members = good.sealed()
    first = members[0]
    return _with_directory(
        bytearray(zip_of(members)), members, Member("archive/other", first.data, central={"offset": 0})
    )


def _over_directory(good: Good) -> bytes:
    members = good.sealed()
    last = members[-1]
    size = len(last.data) + 40
    return zip_of([*members[:-1], last.both(size=size, packed_size=size)])


def _hole(good: Good) -> bytes:
    data = good.bytes()
    return data[:200] + data[300:]


def _concatenated(good: Good) -> bytes:
    return good.bytes() + good.bytes()


def _two_ends(good: Good) -> bytes:
    end = good.bytes()[-22:]
    return zip_of(good.sealed(), before_end=end)


def _wide(good: Good, count: int = 0, offset: int = 0) -> bytes:
    """A zip64 end record that says something else than the end record."""
    data = bytearray(good.bytes())
    here, size, start = struct.unpack_from("<H2I", data, len(data) - 12)
    at = len(data) - 22
    data[at:at] = end64(here + count, size, start + offset, at)
    return bytes(data)


def _lost(good: Good) -> bytes:
    """A locator that sends readers to a zip64 end record inside of a member."""
    data = bytearray(good.bytes())
    here, size, start = struct.unpack_from("<H2I", data, len(data) - 12)
    hidden = end64(here, size, start, 0)[:56]
    good = good.having({"hidden.bin": hidden})
    data = bytearray(good.bytes())
    at = data.index(hidden)
    data[-22:-22] = end64(0, 0, 0, at)[56:]
    return bytes(data)


def _described(good: Good) -> bytes:
    member = Member("archive/described.txt", b"text", described=True, descriptor=b"PK\7\x08" + bytes(12))
    return zip_of([*good.sealed(), member])


def _not_utf8(flags: int) -> Callable[[Good], bytes]:
    return lambda good: zip_of([*good.sealed(), Member(b"archive/caf\xe9.txt", b"").both(flags=flags)])


def _padded(field: bytes) -> Callable[[Good], bytes]:
    return _local(SOURCE, extra=field)


_UNICODE_PATH = struct.pack("<HHBI", 0x7075, 5 + 9, 1, 0) + b"evil_name"
_DECOMPOSED = unicodedata.normalize("NFD", "archive/é.txt")

STRUCTURE = [
    Case("zip slip", "write outside of where it is unpacked, by `..`", "structure", "name-place",
         _named("archive/../../outside.txt")),
    Case("backslash path", "write outside on a system that takes `\\` for `/`", "structure", "name-place",
         _named("archive/..\\outside.txt")),
    Case("second root", "hide members from torch, which knows one root folder", "structure", "name-place",
         _named("other/scale_model.py")),
    Case("empty part", "be `model.py` for some readers and nothing for others", "structure", "name-place",
         _named("archive//scale_model.py")),
    Case("NUL in a name", "end the name early for readers in C", "structure", "name-characters",
         _named("archive/scale_model.py\0.txt")),
    Case("text direction in a name", "show another name than it has", "structure", "name-characters",
         _named("archive/\u202eyp.txt")),
    Case("name that is not UTF-8", "have a name that readers decode differently", "structure",
         "name-encoding", _not_utf8(UTF8)),
    Case("name in an unknown encoding", "the same, without saying UTF-8", "structure", "name-encoding",
         _not_utf8(0)),
    Case("name in another normal form", "be the same file as another on some systems", "structure",
         "name-normal-form", _named(_DECOMPOSED)),
    Case("name of 600 bytes", "be cut off by torch, and be another file then", "structure", "name-length",
         _named("archive/" + "a" * 592)),
    Case("symbolic link", "read /etc/passwd as a member", "structure", "link",
         _spoiled(SOURCE, lambda m: Member(m.name, b"/etc/passwd", central={"attributes": 0o120777 << 16}))),
    Case("named pipe", "make who unpacks it wait for ever", "structure", "link",
         _central(SOURCE, attributes=0o010644 << 16)),
    Case("folder entry", "be a folder and a file", "structure", "folder", _named("archive/sub/")),
    Case("folder attribute", "be a folder for those who look at attributes", "structure", "folder",
         _central(SOURCE, attributes=0x10)),
    Case("duplicate name", "be one module when checked and another when run", "structure",
         "duplicate-name", _twice),
    Case("names that differ in case", "the same: torch compares names without case", "structure",
         "duplicate-name", _named("archive/Scale_Model.py")),
    Case("file and folder", "be unpacked over itself", "structure", "file-and-folder",
         _named("archive/scale_model.py/x")),
    Case("100,000 files", "cost time and memory by count", "structure", "too-many-members",
         lambda _good: _many()),
    Case("100,000 files, said to be 34,464", "the same, past the check of the count", "structure",
         "directory", lambda _good: _many(wide=False)),
    Case("bomb by ratio", "unpack 32 KB to 32 MB", "structure", "ratio", _bomb),
    Case("bomb by size", "unpack 1 MB to 1.1 GB, each member harmless", "structure", "inflated-size",
         _many_bombs),
    Case("overlapping members", "unpack the same bytes many times", "structure", "overlap", _same_place),
    Case("two names for one place", "give checked bytes a name that was not checked", "structure",
         "overlap", _alias),
    Case("member over the directory", "be content and directory at once", "structure", "overlap",
         _over_directory),
    Case("truncated", "be taken for whole", "structure", "no-zip", lambda good: good.bytes()[:-300]),
    Case("a piece missing", "shift all weights by 100 bytes", "structure", "directory-place", _hole),
    Case("size beyond the file", "read or map what lies behind the file", "structure", "size",
         _central(STORAGE, size=1 << 30, packed_size=1 << 30)),
    Case("stored with two sizes", "be 16 bytes when mapped and 4,096 when read", "structure", "size",
         _central(STORAGE, size=4096)),
    Case("lying local size", "have a size for readers from the front, another from the end", "structure",
         "two-sizes", _local(SOURCE, size=7, packed_size=7)),
    Case("lying local checksum", "pass one reader's check and not another's", "structure", "two-sizes",
         _local(SOURCE, crc=7)),
    Case("lying data descriptor", "the same, behind the content", "structure", "two-sizes", _described),
    Case("two names for one member", "be `scale_model.py` for torch and another for Python's zipfile",
         "structure", "two-names", _local(SOURCE, name=b"archive/other_model.py")),
    Case("two methods for one member", "be stored for one reader and deflated for another", "structure",
         "two-headers", _local(SOURCE, method=8)),
    Case("encrypted", "be content that no reader can check", "structure", "encrypted",
         _spoiled(SOURCE, lambda m: m.both(flags=1))),
    Case("unknown method", "be content that only some readers can unpack", "structure", "method",
         _spoiled(SOURCE, lambda m: m.both(method=12))),
    Case("patch data", "be a patch of content elsewhere", "structure", "feature",
         _spoiled(SOURCE, lambda m: m.both(flags=1 << 5))),
    Case("hidden gap", "carry bytes that no digest covers", "structure", "gap",
         lambda good: zip_of([*good.sealed(), Member("archive/a.txt", b"", before=b"hidden")])),
    Case("hidden member", "carry a member that only some readers find", "structure", "gap",
         lambda good: zip_of(good.sealed(), before_directory=zip_of([Member("archive/a", b"")])[:-22])),
    Case("trailing bytes", "carry bytes that no digest covers", "structure", "trailing-bytes",
         lambda good: zip_of(good.sealed(), trailing=b"more")),
    Case("comment", "the same", "structure", "comment", lambda good: zip_of(good.sealed(), comment=b"more")),
    Case("member comment", "the same", "structure", "comment", _central(SOURCE, comment=b"more")),
    Case("two archives in one file", "be the first for some readers, the second for others", "structure",
         "two-ends", _concatenated),
    Case("two ends", "have a directory by each", "structure", "two-ends", _two_ends),
    Case("zip64 count that differs", "hold more members for readers of zip64", "structure", "zip64",
         lambda good: _wide(good, count=1)),
    Case("zip64 offset that differs", "have another directory for readers of zip64", "structure", "zip64",
         lambda good: _wide(good, offset=-4)),
    Case("zip64 end inside of a member", "the same, where no reader looks", "structure", "zip64", _lost),
    Case("zip64 size that is not needed", "have two sizes", "structure", "zip64",
         _central(STORAGE, size=0xFFFFFFFF, packed_size=0xFFFFFFFF,
                  extra=struct.pack("<HHQQ", 1, 16, 16, 16))),
    Case("second name in an extra field", "be renamed for readers of Info-ZIP's field", "structure",
         "extra-field", _padded(_UNICODE_PATH)),
    Case("padding that is not padding", "carry bytes that no digest covers", "structure", "extra-field",
         _padded(b"FB\4\0evil")),
    Case("part of a split archive", "have members elsewhere", "structure", "split-archive",
         lambda good: zip_of(good.sealed(), end={"disk": 1})),
    Case("compressed weights", "be unpacked in each interpreter, and mapped in none", "structure",
         "compressed-weights", _spoiled(STORAGE, lambda m: replace(m, deflated=True))),
    Case("changed content", "pass for what its checksum says", "structure", "checksum",
         _spoiled(MANIFEST, lambda m: m.both(crc=7))),
    Case("other byte order", "be weights read backwards", "structure", "version",
         _content("byteorder", b"big")),
    Case("format version from the future", "make torch's reader guess", "structure", "version",
         _content(".data/version", b"99999999999999999999\n")),
    Case("externs that are no modules", "send the importer to a path", "structure", "extern-modules",
         _content(".data/extern_modules", b"torch\n../../etc\n")),
]  # fmt: skip
