"""Reads the structure of an archive's zip so strictly that only one interpretation is possible.

Three readers open an archive: this one, torch's (miniz), and Python's zipfile in other programs. They
tolerate different errors, so one file could mean different things to them. This reader tolerates none: each
byte belongs to exactly one member, header or directory, and repeated facts must agree.

torch (miniz) writes members without gaps, stored, with a data descriptor. An extra field ``FB`` aligns each
member's bytes to a multiple of 64, and zip64 is used if a size or an offset needs it. Python's zipfile
appends members without gaps and padding, with sizes in the local header.

Standard library only.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import IO, Final, NoReturn

from interpool.native.archive.member_names import checked_names
from interpool.native.errors import StructureError

MOST_MEMBERS: Final = 65_536
MOST_DIRECTORY_BYTES: Final = 64 << 20
MOST_INFLATED_BYTES: Final = 1 << 30
"""Limit for all deflated members together. Weights do not count: they must be stored."""
MOST_RATIO: Final = 200
"""Limit of the compression ratio of a deflated member, beyond its first MiB."""

_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")
_END64 = struct.Struct("<4sQ2H2I4Q")
_LOCATOR = struct.Struct("<4sIQI")
_DESCRIPTOR = struct.Struct("<4s3I")
_DESCRIPTOR64 = struct.Struct("<4sI2Q")

_ENCRYPTED, _DESCRIBED, _UTF8 = 1 << 0, 1 << 3, 1 << 11
_DEFLATE_LEVEL = 1 << 1 | 1 << 2
_NEWEST_FORMAT = 45  # zip64
_STORED, _DEFLATED = 0, 8
_ZIP64_FIELD = 0x0001
_PADDING_FIELD = int.from_bytes(b"FB", "little")
_FULL16, _FULL32 = 0xFFFF, 0xFFFFFFFF
# Python's zipfile uses zip64 for values of more than 31 bits, torch for more than 32.
_LEAST_WIDE = 1 << 31

_AGAIN = "Copy it again, or pack it again with `interpool pack`."
_PACK_AGAIN = "Pack it again with `interpool pack`."


@dataclass(frozen=True)
class Record:
    """One member of an archive.

    Attributes:
        name: its name below the archive's root folder.
        offset: of its bytes in the archive file.
        size: of its content, in bytes.
        stored: whether it is not compressed.
        packed_size: of its bytes in the archive file.
        crc: the CRC-32 of its content in the header.
    """

    name: str
    offset: int
    size: int
    stored: bool
    packed_size: int
    crc: int


@dataclass(frozen=True)
class _Directory:
    """The central directory's location, and the number of its members."""

    offset: int
    size: int
    count: int


@dataclass(frozen=True)
class _Entry:
    """A member's entry in the central directory."""

    raw_name: bytes
    flags: int
    method: int
    crc: int
    packed_size: int
    size: int
    offset: int


def read_structure(path: str, file: IO[bytes], most_members: int = MOST_MEMBERS) -> dict[str, Record]:
    """Return the members of a zip with one root folder, by their names below it.

    Args:
        path: the archive's path as the user knows it; messages name it.
        file: the open archive.
        most_members: the largest allowed number of members.

    Raises:
        StructureError: it is not a zip, or breaks a rule.
        OSError: it cannot be read.
    """
    return _Zip(path, file, most_members).records()


class _Zip:
    def __init__(self, path: str, file: IO[bytes], most_members: int) -> None:
        self._path = path
        self._file = file
        self._most_members = most_members
        self._size = file.seek(0, 2)

    def records(self) -> dict[str, Record]:
        directory = self._directory()
        entries = self._entries(directory)
        names = checked_names(self._path, [(entry.raw_name, bool(entry.flags & _UTF8)) for entry in entries])
        self._check_inflation(names, entries)
        ordered = sorted(zip(entries, names, strict=True), key=lambda item: item[0].offset)
        ends = [*[entry.offset for entry, _ in ordered], directory.offset][1:]
        found = {}
        expected = 0
        for (entry, name), end in zip(ordered, ends, strict=True):
            if entry.offset != expected:
                self._uncovered(name, entry.offset, expected)
            found[name] = self._record(entry, name, end)
            expected = end
        if expected != directory.offset:
            self._uncovered("its directory", directory.offset, expected)
        # in the directory's order, as torch lists them
        return {name: found[name] for name in names}

    def _directory(self) -> _Directory:
        """Locate the directory by the end record, which must be the file's last bytes."""
        at = self._size - _END.size
        raw = self._read(at, _END.size) if at >= 0 else b""
        if raw[:4] != b"PK\5\6":
            self._no_end()
        _, disk, first_disk, here, count, size, offset, comment = _END.unpack(raw)
        if comment:
            self._no_end()
        end = at
        located = self._read(at - _LOCATOR.size, _LOCATOR.size) if at >= _LOCATOR.size else b""
        if located[:4] == b"PK\6\7":
            end, here, count, size, offset = self._zip64_directory(
                at - _LOCATOR.size, located, (disk, first_disk, here, count, size, offset)
            )
        elif disk or first_disk or here != count:
            self._refuse("split-archive", "says that it is one part of several.")
        if count > self._most_members:
            self._refuse("too-many-members", f"holds {count:,} files; {self._most_members:,} are allowed.")
        if size > MOST_DIRECTORY_BYTES:
            self._refuse("directory-size", f"has a directory of {size:,} bytes, which no packer writes.")
        if offset + size != end:
            if b"PK\5\6" in self._read(max(0, min(offset + size, end)), min(self._size, 1 << 16))[:-22]:
                self._refuse("two-ends", "ends twice: readers would disagree where its directory is.")
            self._refuse(
                "directory-place",
                f"was cut short, or something was put into it: its directory should end at byte {end}, "
                f"not at {offset + size}.",
                _AGAIN,
            )
        return _Directory(offset, size, count)

    def _no_end(self) -> NoReturn:
        tail = self._read(max(0, self._size - _END.size - _FULL16), _END.size + _FULL16)
        found = tail.rfind(b"PK\5\6")
        left = len(tail) - found
        if found >= 0 and left > _END.size:
            stated = _END.unpack_from(tail, found)[-1]
            if stated == left - _END.size:
                self._refuse("comment", "carries a comment, which no packer writes.")
            self._refuse("trailing-bytes", f"goes on for {left - _END.size} bytes after its end.", _AGAIN)
        self._refuse("no-zip", "is not a zip archive, or was cut short.", _AGAIN)

    def _zip64_directory(
        self, locator_at: int, located: bytes, short: tuple[int, int, int, int, int, int]
    ) -> tuple[int, int, int, int, int]:
        _, disk, at, disks = _LOCATOR.unpack(located)
        raw = self._read(at, _END64.size) if at == locator_at - _END64.size and at >= 0 else b""
        if raw[:4] != b"PK\6\6" or disk or disks > 1:
            self._refuse("zip64", "has a zip64 end record that is not where it says.", _AGAIN)
        _, length, _, _, on, first, here, count, size, offset = _END64.unpack(raw)
        full = (_FULL16, _FULL16, _FULL16, _FULL16, _FULL32, _FULL32)
        long = (on, first, here, count, size, offset)
        same = all(a in (b, limit) for a, b, limit in zip(short, long, full, strict=True))
        if not same or length != _END64.size - 12 or on or first or here != count:
            self._refuse("zip64", "has two end records that contradict each other.")
        return at, here, count, size, offset

    def _entries(self, directory: _Directory) -> list[_Entry]:
        raw = self._read(directory.offset, directory.size)
        if directory.count * _CENTRAL.size > len(raw):
            self._refuse("directory", f"lists fewer files than the {directory.count:,} that it says.", _AGAIN)
        entries = []
        at = 0
        for _ in range(directory.count):
            entry, at = self._entry(raw, at)
            entries.append(entry)
        if at != len(raw):
            self._refuse("directory", "lists more files than it says.", _AGAIN)
        return entries

    def _entry(self, raw: bytes, at: int) -> tuple[_Entry, int]:
        fields = raw[at : at + _CENTRAL.size]
        if len(fields) < _CENTRAL.size or fields[:4] != b"PK\1\2":
            self._refuse("directory", "has a damaged directory.", _AGAIN)
        (_, _, needed, flags, method, _, _, crc, packed_size, size, name_length,
         extra_length, comment_length, disk, _, attributes, offset) = _CENTRAL.unpack(fields)  # fmt: skip
        at += _CENTRAL.size
        raw_name = raw[at : at + name_length]
        extra = raw[at + name_length : at + name_length + extra_length]
        at += name_length + extra_length + comment_length
        if at > len(raw):
            self._refuse("directory", "has a damaged directory.", _AGAIN)
        who = _shown(raw_name)
        if comment_length:
            self._refuse("comment", f"carries a comment on {who}, which no packer writes.")
        if flags & _ENCRYPTED:
            self._refuse("encrypted", f"holds {who} encrypted.")
        if flags & ~(_DESCRIBED | _UTF8 | _DEFLATE_LEVEL) or needed & 0xFF > _NEWEST_FORMAT:
            self._refuse("feature", f"uses a feature of zip for {who} that no packer uses.")
        if method not in (_STORED, _DEFLATED):
            self._refuse("method", f"holds {who} compressed by method {method}; it must be stored.")
        kind = attributes >> 16 & 0o170000
        if kind not in (0, 0o100000):
            what = "link" if kind == 0o120000 else "special file"
            self._refuse("link", f"holds {who} as a {what}; an archive holds plain files only.")
        if attributes & 0x418 or raw_name.endswith(b"/"):
            self._refuse("folder", f"holds {who} as a folder or link; an archive holds plain files only.")
        size, packed_size, offset = self._wide(who, extra, size, packed_size, offset)
        if disk:
            self._refuse("split-archive", f"says that {who} lies in another part of it.")
        if offset + packed_size > self._size:
            self._refuse("size", f"was cut short: {who} goes beyond the end of the file.", _AGAIN)
        if method == _STORED and size != packed_size:
            self._refuse("size", f"gives two sizes for {who}, {size:,} and {packed_size:,} bytes.")
        return _Entry(raw_name, flags, method, crc, packed_size, size, offset), at

    def _wide(self, who: str, extra: bytes, size: int, packed_size: int, offset: int) -> tuple[int, int, int]:
        """Return the directory's sizes and offset; the zip64 field contains exactly those that overflow."""
        narrow = [size, packed_size, offset]
        full = [index for index, value in enumerate(narrow) if value == _FULL32]
        expected = struct.pack("<HH", _ZIP64_FIELD, 8 * len(full)) if full else b""
        if extra[:4] != expected or len(extra) != len(expected) + 8 * len(full):
            rule = "zip64" if full or extra[:2] == b"\1\0" else "extra-field"
            self._refuse(rule, f"has an extra field for {who} in its directory, which no packer writes.")
        for place, index in enumerate(full):
            (narrow[index],) = struct.unpack_from("<Q", extra, 4 + 8 * place)
            if narrow[index] < _LEAST_WIDE:
                self._refuse("zip64", f"uses zip64 for {who}, which is too small for it.")
        return narrow[0], narrow[1], narrow[2]

    def _check_inflation(self, names: list[str], entries: list[_Entry]) -> None:
        total = 0
        for name, entry in zip(names, entries, strict=True):
            if entry.method == _STORED:
                continue
            if name.startswith(".data/") and name.endswith(".storage"):
                self._refuse("compressed-weights", f"holds the weights {name} compressed.")
            if entry.size > (1 << 20) + MOST_RATIO * entry.packed_size:
                self._refuse(
                    "ratio",
                    f"would unpack {name} from {entry.packed_size:,} to {entry.size:,} bytes: a zip bomb.",
                )
            total += entry.size
        if total > MOST_INFLATED_BYTES:
            self._refuse(
                "inflated-size",
                f"would unpack to {total:,} bytes; {MOST_INFLATED_BYTES:,} of compressed files are allowed.",
            )

    def _record(self, entry: _Entry, name: str, end: int) -> Record:
        """Check that a member's local header and descriptor agree with the directory."""
        raw = self._read(entry.offset, _LOCAL.size + len(entry.raw_name) + 128)
        if len(raw) < _LOCAL.size or raw[:4] != b"PK\3\4":
            self._refuse("local-header", f"is damaged at {name}.", _AGAIN)
        (_, _, flags, method, _, _, crc, packed_size, size, name_length, extra_length) = _LOCAL.unpack_from(
            raw
        )
        if raw[_LOCAL.size : _LOCAL.size + name_length] != entry.raw_name:
            local = _shown(raw[_LOCAL.size : _LOCAL.size + name_length])
            self._refuse("two-names", f"calls a file {name} in one place and {local} in another.")
        start = entry.offset + _LOCAL.size + name_length + extra_length
        extra_at = _LOCAL.size + name_length
        extra = raw[extra_at : extra_at + extra_length]
        if len(extra) < extra_length:
            extra = self._read(entry.offset + extra_at, extra_length)
        wide = self._check_local_extra(name, entry, extra)
        if flags != entry.flags or method != entry.method:
            self._refuse("two-headers", f"describes {name} in two ways.")
        stated = (crc, packed_size, size)
        true = (entry.crc, entry.packed_size, entry.size)
        if flags & _DESCRIBED:
            agrees = stated == (0, 0, 0) or stated == true or (wide and stated == (0, _FULL32, _FULL32))
        else:
            agrees = all(a == b or (wide and a == _FULL32) for a, b in zip(stated, true, strict=True))
        if not agrees:
            self._refuse("two-sizes", f"gives two sizes or checksums for {name}.")
        data_end = start + entry.packed_size
        if data_end > end:
            self._refuse("overlap", f"holds {name} and its neighbour in the same place.")
        left = end - data_end
        if flags & _DESCRIBED:
            left -= self._check_descriptor(name, entry, data_end, left)
        if left:
            self._uncovered(name, end, end - left)
        return Record(name, start, entry.size, entry.method == _STORED, entry.packed_size, entry.crc)

    def _check_local_extra(self, name: str, entry: _Entry, extra: bytes) -> bool:
        """Return whether there is a zip64 field; refuse fields other than it and torch's padding."""
        known = {0, entry.size, entry.packed_size, entry.offset}
        seen = set()
        at = 0
        while at + 4 <= len(extra):
            field, length = struct.unpack_from("<HH", extra, at)
            content = extra[at + 4 : at + 4 + length]
            at += 4 + length
            if field in seen or len(content) < length:
                break
            seen.add(field)
            if field == _ZIP64_FIELD and length in (8, 16, 24):
                if not known.issuperset(struct.unpack(f"<{length // 8}Q", content)):
                    self._refuse("zip64", f"gives two sizes for {name}.")
            elif field != _PADDING_FIELD or content != b"Z" * length:
                break
        else:
            if at == len(extra):
                return _ZIP64_FIELD in seen
        return self._refuse("extra-field", f"has an extra field at {name} that no packer writes.")

    def _check_descriptor(self, name: str, entry: _Entry, at: int, room: int) -> int:
        shape = _DESCRIPTOR64 if room >= _DESCRIPTOR64.size else _DESCRIPTOR
        raw = self._read(at, shape.size) if room >= shape.size else b""
        if raw[:4] != b"PK\7\x08" or shape.unpack(raw)[1:] != (entry.crc, entry.packed_size, entry.size):
            self._refuse("two-sizes", f"gives two sizes or checksums for {name}.")
        return shape.size

    def _uncovered(self, name: str, at: int, expected: int) -> NoReturn:
        if at < expected:
            self._refuse("overlap", f"holds {name} and its neighbour in the same place.")
        self._refuse("gap", f"has {at - expected:,} bytes before byte {at} that belong to nothing.")

    def _read(self, at: int, size: int) -> bytes:
        self._file.seek(at)
        return self._file.read(size)

    def _refuse(self, rule: str, what: str, advice: str = _PACK_AGAIN) -> NoReturn:
        raise StructureError(f"{self._path} {what} {advice}", rule)


def _shown(raw_name: bytes) -> str:
    return ascii(raw_name[:80].decode("utf-8", "replace"))


def read_member(path: str, file: IO[bytes], record: Record) -> bytes:
    """Return a member's content, checked against its stated size and CRC-32.

    Args:
        path: the archive's path, for messages.
        file: the open archive.
        record: the member.

    Raises:
        StructureError: the content does not match its headers.
        OSError: it cannot be read.
    """
    file.seek(record.offset)
    data = file.read(record.packed_size)
    if not record.stored:
        data = _inflated(data, record.size)
    if len(data) != record.size or zlib.crc32(data) != record.crc:
        raise StructureError(
            f"{path} is damaged at {record.name}: its checksum is wrong. {_AGAIN}", "checksum"
        )
    return data


def _inflated(data: bytes, size: int) -> bytes:
    """Decompress at most one byte more than stated; return nothing if that fails."""
    unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        content = unpacker.decompress(data, size + 1)
    except zlib.error:
        return b""
    return content if unpacker.eof and not unpacker.unused_data else b""
