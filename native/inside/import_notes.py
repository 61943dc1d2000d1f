"""What a full import of torch told, kept in the cache for processes that start later.

So their first interpreter can be lean, too (``lean_imports.py``). A note is taken for true only where all
that a full import depends on is as it was: Python, search path, torch's environment variables, accelerators,
every file that was imported, and every module that was looked for and not found. Any doubt: no note.

A few are kept, as programs with other search paths take turns.
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

_VERSION = 1
_MOST_NOTES = 8
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
    try:
        with open(_file(folder), encoding="utf-8") as file:
            kept: dict[str, Any] = json.load(file)
        true = kept["facts"] == _facts() and _as_they_were(kept["files"]) and not _found(kept["missing"])
        return str(kept["note"]) if true else ""
    except (OSError, ValueError, KeyError, TypeError):
        return ""  # none yet, or not whole


def write(folder: str, note: str, seen: Watch) -> None:
    """Keep a note for others; where that cannot be, they do without."""
    try:
        named = {getattr(module, "__file__", None) for module in sys.modules.values()}
        files = [[file, _stamp(file)] for file in sorted(file for file in named if isinstance(file, str))]
        text = json.dumps({"facts": _facts(), "files": files, "missing": seen.missing, "note": note})
        final = _file(folder)
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


def remove(folder: str) -> None:
    """Drop the note that an import did not succeed with."""
    with contextlib.suppress(OSError):
        os.unlink(_file(folder))


def _facts() -> dict[str, Any]:
    """All that decides what is imported, but for files."""
    own = [__file__, str(torch_imports.__file__), os.path.join(os.path.dirname(__file__), "lean_imports.py")]
    return {
        "version": _VERSION,
        "python": sys.version,
        "flags": list(sys.flags),
        "path": sys.path,
        "own": [_stamp(file) for file in own],
        "environment": {
            name: hashlib.sha256(value.encode("utf-8", "surrogateescape")).hexdigest()
            for name, value in sorted(os.environ.items())
            if "TORCH" in name
        },
        "devices": sorted(name for name in os.listdir("/dev") if name.startswith(_DEVICES)),
    }


def _file(folder: str) -> str:
    text = json.dumps(_facts(), sort_keys=True)
    return os.path.join(
        folder, hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16] + ".json"
    )


def _stamp(file: str) -> list[int] | None:
    """Tells a file from a later one; None for what is none: modules of archives, torch.ops."""
    try:
        found = os.stat(file)
    except OSError:
        return None
    return [found.st_size, found.st_mtime_ns]


def _as_they_were(files: Sequence[tuple[str, list[int] | None]]) -> bool:
    return all(_stamp(file) == stamp for file, stamp in files)


def _found(names: Sequence[str]) -> bool:
    """Whether any of the modules is there now. Those inside packages are not asked for: these have stamps."""
    return any("." not in name and PathFinder.find_spec(name) is not None for name in names)


def _keep_few(folder: str) -> None:
    notes = sorted(Path(folder).glob("*.json"), key=lambda note: note.stat().st_mtime_ns, reverse=True)
    for old in notes[_MOST_NOTES:]:
        old.unlink()
