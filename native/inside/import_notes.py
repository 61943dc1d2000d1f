"""Caches notes about full imports of torch, for processes that start later.

With a note, the first interpreter of a process can defer imports, too (``lean_imports.py``). A note is valid
only if everything that a full import depends on is unchanged. This includes Python, search path, torch's
environment variables, accelerators, every imported file, and every module that was not found. In doubt, a
note is ignored.

The cache keeps several notes, because programs with different search paths share it.

A bundle contains its notes. Files below the parent of the notes' folder are named relative to that parent.
They are compared by size only, because a copied bundle has other modification times.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interpool.native.upstream import torch_imports

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_VERSION = 3
_MOST_NOTES = 8
_HERE = "<here>"  # stands for the parent of the notes' folder
_DEVICES = ("nvidia", "kfd", "dri", "accel", "davinci")


class Watch:
    """Import finder that records the modules that an import does not find.

    Attributes:
        missing: their names.
    """

    def __init__(self) -> None:
        self.missing: list[str] = []

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        """Record the name: this finder runs last, so all others have failed.

        Args:
            name: of the module.
            path: the parent's search path; unused.
            target: unused.
        """
        self.missing.append(name)


@contextlib.contextmanager
def watch() -> Iterator[Watch]:
    """Record failed lookups of modules during a ``with`` block."""
    seen = Watch()
    sys.meta_path.append(seen)
    try:
        yield seen
    finally:
        sys.meta_path.remove(seen)


def read(folder: str) -> str:
    """Return the valid note for this interpreter; "" if there is none."""
    here = _Here(folder)
    try:
        with open(_file(here), encoding="utf-8") as file:
            kept: dict[str, Any] = json.load(file)
        true = (
            kept["facts"] == _facts(here)
            and _as_they_were(here, kept["files"])
            and not _found(kept["missing"])
        )
        return here.put_into(str(kept["note"])) if true else ""
    except (OSError, ValueError, KeyError, TypeError):
        return ""  # no note yet, or an incomplete one


def write(folder: str, note: str, seen: Watch) -> None:
    """Cache a note for later processes; do nothing if the folder cannot be written.

    Args:
        folder: the folder of notes; it is created if it does not exist.
        note: the note, JSON from ``lean_imports.import_fully``.
        seen: the failed lookups of that import.
    """
    here = _Here(folder)
    try:
        named = {getattr(module, "__file__", None) for module in sys.modules.values()}
        files = [
            [here.relative(file), here.stamp(file)]
            for file in sorted(file for file in named if isinstance(file, str))
        ]
        kept = {"facts": _facts(here), "files": files, "missing": seen.missing, "note": here.take_from(note)}
        text = json.dumps(kept)
        final = _file(here)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        draft = f"{final}.{os.getpid()}-{id(seen):x}"
        try:
            with open(draft, "x", encoding="utf-8") as file:
                file.write(text)
            os.replace(draft, final)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(draft)
        _keep_few(folder)
    except OSError:
        pass


def remove(folder: str) -> bool:
    """Delete the note with which an import failed. Returns whether it is gone."""
    file = _file(_Here(folder))
    with contextlib.suppress(OSError):
        os.unlink(file)
    return not os.path.lexists(file)


class _Here:
    """Translates file names between this machine and notes, which name files relative to a folder."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._root = os.path.dirname(os.path.abspath(folder)) + "/"

    def relative(self, file: str) -> str:
        return f"{_HERE}/{file.removeprefix(self._root)}" if file.startswith(self._root) else file

    def absolute(self, name: str) -> str:
        return self._root + name.removeprefix(f"{_HERE}/") if name.startswith(f"{_HERE}/") else name

    def take_from(self, text: str) -> str:
        """Replace the folder's path in JSON, if a string or a word in one begins with it."""
        return _replace(text, self._root, f"{_HERE}/")

    def put_into(self, text: str) -> str:
        """Undo ``take_from``."""
        return _replace(text, f"{_HERE}/", self._root)

    def stamp(self, file: str) -> list[int] | None:
        """Return what changes if a file is replaced; None if it is no file, such as an archive's module.

        Times are whole seconds, because layers of container images keep no fractions.
        """
        try:
            found = os.stat(file)
        except OSError:
            return None
        changed = found.st_mtime_ns // 10**9
        return [found.st_size] if file.startswith(self._root) else [found.st_size, changed]


def _replace(text: str, old: str, new: str) -> str:
    for before in ('"', " ", "\\t"):  # "registered at FILE:LINE", and fields of registrations
        text = text.replace(before + json.dumps(old)[1:-1], before + json.dumps(new)[1:-1])
    return text


def _facts(here: _Here) -> dict[str, Any]:
    """Return all that determines what is imported, except the files."""
    own = [__file__, str(torch_imports.__file__), os.path.join(os.path.dirname(__file__), "lean_imports.py")]
    return {
        "version": _VERSION,
        "python": sys.version,
        "flags": list(sys.flags),
        "path": [here.relative(entry) for entry in sys.path],
        "own": [here.stamp(file) for file in own],
        "environment": {
            name: hashlib.sha256(value.encode("utf-8", "surrogateescape")).hexdigest()
            for name, value in sorted(os.environ.items())
            if "TORCH" in name
        },
        "devices": sorted(name for name in os.listdir("/dev") if name.startswith(_DEVICES)),
    }


def _file(here: _Here) -> str:
    text = json.dumps(_facts(here), sort_keys=True)
    return os.path.join(
        here.folder, hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16] + ".json"
    )


def _as_they_were(here: _Here, files: Sequence[tuple[str, list[int] | None]]) -> bool:
    return all(here.stamp(here.absolute(name)) == stamp for name, stamp in files)


def _found(names: Sequence[str]) -> bool:
    """Return whether any of these top-level modules exists now. Stamps of packages cover submodules."""
    return any("." not in name and PathFinder.find_spec(name) is not None for name in names)


def _keep_few(folder: str) -> None:
    notes = sorted(Path(folder).glob("*.json"), key=lambda note: note.stat().st_mtime_ns, reverse=True)
    for old in notes[_MOST_NOTES:]:
        old.unlink()
