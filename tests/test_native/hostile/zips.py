"""Writes zips byte by byte, right or wrong in one place."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache

DESCRIBED, UTF8 = 1 << 3, 1 << 11


@dataclass(frozen=True)
class Member:
    """One member. What is not given is as it should be.

    ``local`` and ``central`` replace single fields of the two headers: name, needed, flags,
    method, crc, packed_size, size, extra. The central one also has comment, disk, attributes,
    offset.
    """

    name: str | bytes
    data: bytes
    deflated: bool = False
    described: bool = False
    local: dict[str, int | bytes] = field(default_factory=dict)
    central: dict[str, int | bytes] = field(default_factory=dict)
    descriptor: bytes | None = None
    before: bytes = b""

    def both(self, **fields: int | bytes) -> Member:
        return replace(self, local={**self.local, **fields}, central={**self.central, **fields})


def zip_of(
    members: Sequence[Member],
    *,
    before_directory: bytes = b"",
    before_end: bytes = b"",
    comment: bytes = b"",
    trailing: bytes = b"",
    end: dict[str, int] | None = None,
) -> bytes:
    out = bytearray()
    directory = bytearray()
    for member in members:
        out += member.before
        offset = len(out)
        content = _deflate(member.data) if member.deflated else member.data
        name = member.name if isinstance(member.name, bytes) else member.name.encode()
        flags = (DESCRIBED if member.described else 0) | (0 if name.isascii() else UTF8)
        sizes = {"crc": _crc(member.data), "packed_size": len(content), "size": len(member.data)}
        common = {"name": name, "needed": 20, "flags": flags, "method": 8 if member.deflated else 0,
                  "extra": b"", **sizes}  # fmt: skip
        hidden = {"crc": 0, "packed_size": 0, "size": 0} if member.described else {}
        out += _local({**common, **hidden, **member.local}) + content
        if member.described:
            right = struct.pack("<4s3I", b"PK\7\x08", *sizes.values())
            out += right if member.descriptor is None else member.descriptor
        directory += _central({**common, "offset": offset, **member.central})
    out += before_directory
    fields = {"count": len(members), "here": len(members), "size": len(directory), "offset": len(out),
              "disk": 0, "first": 0, **(end or {})}  # fmt: skip
    out += directory + before_end
    f = fields
    out += struct.pack("<4s4H2IH", b"PK\5\6", f["disk"], f["first"], f["here"] & 0xFFFF,
                       f["count"] & 0xFFFF, f["size"], f["offset"], len(comment))  # fmt: skip
    return bytes(out) + comment + trailing


@cache
def _deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


@cache
def _crc(data: bytes) -> int:
    return zlib.crc32(data)


def _local(h: dict[str, int | bytes]) -> bytes:
    name, extra = bytes(h["name"]), bytes(h["extra"])  # type: ignore[arg-type]
    head = struct.pack("<4s5H3I2H", b"PK\3\4", h["needed"], h["flags"], h["method"], 0, 0x21,
                       h["crc"], h["packed_size"], h["size"], len(name), len(extra))  # fmt: skip
    return head + name + extra


def _central(h: dict[str, int | bytes]) -> bytes:
    name, extra, comment = (bytes(h.get(key, b"")) for key in ("name", "extra", "comment"))  # type: ignore[arg-type]
    head = struct.pack("<4s6H3I5H2I", b"PK\1\2", 20, h["needed"], h["flags"], h["method"], 0, 0x21,
                       h["crc"], h["packed_size"], h["size"], len(name), len(extra), len(comment),
                       h.get("disk", 0), 0, h.get("attributes", 0), h["offset"])  # fmt: skip
    return head + name + extra + comment


def end64(count: int, size: int, offset: int, at: int) -> bytes:
    """A zip64 end record and the locator of one at ``at``."""
    record = struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, size, offset)
    return record + struct.pack("<4sIQI", b"PK\6\7", 0, at, 1)
