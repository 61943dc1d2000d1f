"""Writes the file that locates private copies for a program without Python: ``core/prepared.cc`` reads it."""

from __future__ import annotations

import importlib.metadata
from typing import TYPE_CHECKING

from interpool.native.errors import ProvisioningError
from interpool.native.provision.store import draft_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_HEADER = "interpool-prepared 2"
FILE_NAME = "prepared.txt"


def write_prepared(
    file: Path,
    named: Mapping[str, str],
    search_path: Sequence[str],
    libpythons: Mapping[int, str],
    copies: Mapping[tuple[str, int], Sequence[str]],
) -> None:
    """Write the file. Paths are absolute, or relative to the file's folder.

    Args:
        file: its path.
        named: the text fields of C++'s ``Installation``.
        search_path: ``sys.path``.
        libpythons: the path of each slot's libpython.
        copies: the files to load, in order, for a path in a slot.

    Raises:
        ProvisioningError: a path contains a tab or a newline, or the file cannot be written.
    """
    lines = [["interpool", importlib.metadata.version("interpool")]]
    lines += [[name, value] for name, value in named.items()]
    lines += [["search", entry] for entry in search_path]
    lines += [["libpython", str(slot), path] for slot, path in libpythons.items()]
    lines += [["copy", str(slot), path, *files] for (path, slot), files in sorted(copies.items())]
    text = "\n".join([_HEADER, *map(_line, lines)]) + "\n"
    try:
        with draft_of(file) as draft:
            draft.write_text(text)
    except OSError as error:
        raise ProvisioningError(
            f"cannot write {file}: {error.strerror}",
            "Make room or make it writable, or name another place with --output or --bundle",
        ) from error


def _line(fields: list[str]) -> str:
    for field in fields:
        if "\t" in field or "\n" in field:
            raise ProvisioningError(f"a path with a tab or a newline cannot be prepared: {field!r}")
    return "\t".join(fields)
