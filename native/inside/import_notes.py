"""What a full import of torch told, kept in the cache for processes that start later.

So their first interpreter can be lean, too (``lean_imports.py``). A note is taken for true only where all
that a full import depends on is as it was: Python, search path, torch's environment variables, accelerators,
every file that was imported, and every module that was looked for and not found. Any doubt: no note.

A few are kept, as programs with other search paths take turns.

A bundle's notes move with it: files below the folder that the notes' folder lies in are named relative to
that, and told by their size alone, as a copy has other times. In a cache there are none.
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

_VERSION = 2
_MOST_NOTES = 8
_HERE = "<here>"  # in place of that folder
_DEVICES = ("nvidia", "kfd", "dri", "accel", "davinci")


class Watch:
    """Sees an import: which modules it looks for in vain.

    Attributes:
        missing: their names.
    """

    def __init__(self) -> None:
        self.missing: list[str] = []

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        """Called as the last of the finders."""
        self.missing.append(name)


@contextlib.contextmanager
def watch() -> Iterator[Watch]:
    """Watch the imports in a ``with`` statement."""
    seen = Watch()
    sys.meta_path.append(seen)
    try:
        yield seen
    finally:
        sys.meta_path.remove(seen)


def read(folder: str) -> str:
    """The note for this interpreter; "" where there is none, or it is not true any more."""
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
        return ""  # none yet, or not whole


def write(folder: str, note: str, seen: Watch) -> None:
    """Keep a note for others; where that cannot be, they do without."""
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
    """Drop the note that an import did not succeed with. Returns whether it is gone."""
    file = _file(_Here(folder))
    with contextlib.suppress(OSError):
        os.unlink(file)
    return not os.path.lexists(file)


class _Here:
    """The folder around that of notes, and names of files as notes have them."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._root = os.path.dirname(os.path.abspath(folder)) + "/"

    def relative(self, file: str) -> str:
        return f"{_HERE}/{file.removeprefix(self._root)}" if file.startswith(self._root) else file

    def absolute(self, name: str) -> str:
        return self._root + name.removeprefix(f"{_HERE}/") if name.startswith(f"{_HERE}/") else name

    def take_from(self, text: str) -> str:
        """JSON without the folder's path, where a string begins with it or one of its words does."""
        return _replace(text, self._root, f"{_HERE}/")

    def put_into(self, text: str) -> str:
        """The contrary."""
        return _replace(text, f"{_HERE}/", self._root)

    def stamp(self, file: str) -> list[int] | None:
        """Tells a file from a later one; None for what is none: modules of archives, torch.ops.

        In whole seconds, as Python tells whether its compiled files are true: layers of container images
        keep no more.
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
    """All that decides what is imported, but for files."""
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
    """Whether any of the modules is there now. Those inside packages are not asked for: these have stamps."""
    return any("." not in name and PathFinder.find_spec(name) is not None for name in names)


def _keep_few(folder: str) -> None:
    notes = sorted(Path(folder).glob("*.json"), key=lambda note: note.stat().st_mtime_ns, reverse=True)
    for old in notes[_MOST_NOTES:]:
        old.unlink()
