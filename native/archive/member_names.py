"""Checks the names of an archive's members.

A name must mean the same to this reader, to torch's reader, to a file system, and to people. The reader of
torch ignores case and stops after 511 bytes. Standard library only.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Final, NoReturn

from interpool.native.errors import StructureError

LONGEST_NAME: Final = 511
"""Bytes; torch ignores the rest of a longer name."""

_PLAIN = re.compile(rb"[A-Za-z0-9_.\-]+(/[A-Za-z0-9_.\-]+)+")


def checked_names(path: str, raw_names: Sequence[tuple[bytes, bool]]) -> list[str]:
    """Return the members' names below their common root folder, in the same order.

    Args:
        path: the archive, for messages.
        raw_names: for each member, the name's bytes in the zip, and whether the zip declares UTF-8.

    Raises:
        StructureError: torch.package would not write a name, or two names are equivalent.
    """
    root = raw_names[0][0].partition(b"/")[0].decode("utf-8", "replace") if raw_names else ""
    names = [_below_root(path, root, _decoded(path, *each)) for each in raw_names]
    known: dict[str, str] = {}
    for name in names:
        other = known.get(name.lower())
        if other is not None:
            what = f"{name} twice" if other == name else f"{other} and {name}, which torch takes for one"
            _refuse(path, "duplicate-name", f"holds {what}")
        known[name.lower()] = name
    for name in names:
        _check_folders(path, name, known)
    return names


def _check_folders(path: str, name: str, known: dict[str, str]) -> None:
    at = name.find("/")
    while at >= 0:
        if name[:at].lower() in known:
            _refuse(path, "file-and-folder", f"holds {name[:at]} as a file and as the folder of {name}")
        at = name.find("/", at + 1)


def _decoded(path: str, raw: bytes, is_utf8: bool) -> str:
    if len(raw) > LONGEST_NAME:
        _refuse(
            path, "name-length", f"holds a file whose name has {len(raw)} bytes; torch reads {LONGEST_NAME}"
        )
    if _PLAIN.fullmatch(raw):
        return raw.decode("ascii")
    try:
        name = raw.decode("utf-8" if is_utf8 else "ascii")
    except UnicodeDecodeError:
        _refuse(path, "name-encoding", f"holds a file whose name is not UTF-8 ({raw[:80]!r})")
    if not name.isprintable():
        _refuse(path, "name-characters", f"holds a file whose name has control characters ({name[:80]!a})")
    if unicodedata.normalize("NFC", name) != name:
        _refuse(path, "name-normal-form", f"holds a file whose name is not in normal form ({name[:80]!a})")
    return name


def _below_root(path: str, root: str, name: str) -> str:
    first, _, rest = name.partition("/")
    strange = first != root or root in ("", ".", "..") or ":" in root or "\\" in name
    if strange or not rest or not {"", ".", ".."}.isdisjoint(rest.split("/")):
        _refuse(
            path,
            "name-place",
            f"holds a file by the name {name[:80]!a}: names are relative, below one root folder, "
            "without '..'",
        )
    return rest


def _refuse(path: str, rule: str, what: str) -> NoReturn:
    raise StructureError(
        f"{path} {what}; torch.package never writes that. Pack it again with `interpool pack`.", rule
    )
