"""Removes extracted models that a killed TorchServe has left behind.

TorchServe extracts each registered archive into the temporary directory, and removes it when the model is
unregistered or the server is stopped. The models of a killed server stay there, and its successor removes
them.

Containers may share that directory, and do not see each other's processes. So locks decide. A server that
`interpool serve` has started holds its home there (server_home.py). Each worker holds the folder of the
extracted models (``shim.hold_extracted``).
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from interpool.handler.frontend.held import unheld
from interpool.handler.frontend.server_home import lives_in, remove_ended
from interpool.handler.torchserve import MANIFEST, frontend_arguments

KEPT = ".interpool-"  # begins the names of what a host keeps of models in a trial (host/kept_directory.py)
_DEFAULT = "/tmp"  # Java's, which ignores TMPDIR
_EXTRACTED = re.compile(r"[0-9a-f]{32}")
_DOWNLOADED = re.compile(r"models\d+\.download")
_TEMPORARY = "-Djava.io.tmpdir="


def temporary_directory() -> Path:
    """The directory where a TorchServe that is started in this environment extracts archives."""
    return Path(os.environ.get("TEMP") or _DEFAULT)


def remove_leftovers(directory: Path) -> list[Path]:
    """Remove the models that servers have extracted into ``directory`` before they ended.

    Only this user's models are removed. While a server lives that extracts there, nothing is removed, because
    it may be that server's. The homes of servers that have ended are removed first.

    Returns:
        The removed paths.

    Raises:
        OSError: a path has changed meanwhile, or cannot be removed.
    """
    remove_ended(directory)
    found = [path for path in _extracted(directory) if path.lstat().st_uid == os.getuid()]
    # Ask after the listing: a server that has made one of these paths is found here, unless it has ended.
    if not found or lives_in(directory) or _is_in_use(directory):
        return []
    models = directory / "models"
    with unheld(models) if models.is_dir() else contextlib.nullcontext(True) as is_free:
        if not is_free:
            return []
        for path in found:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
    return found


def _extracted(directory: Path) -> Iterator[Path]:
    models = directory / "models"
    with contextlib.suppress(OSError):
        if not models.is_symlink() and models.is_dir():
            # A file of another program may have such a name. A link belongs to a model that is no archive.
            yield from (
                path
                for path in models.iterdir()
                if path.name.startswith(KEPT)
                or (_EXTRACTED.fullmatch(path.name) and os.path.isfile(path / MANIFEST))
            )
    with contextlib.suppress(OSError):
        yield from (path for path in directory.iterdir() if _DOWNLOADED.fullmatch(path.name))


def _is_in_use(directory: Path) -> bool:
    """Whether a server of any user, in this PID namespace, lives and extracts into it."""
    for entry in filter(str.isdecimal, os.listdir("/proc")):
        words = frontend_arguments(entry)
        if not words:
            continue
        named = [
            os.fsdecode(word)[len(_TEMPORARY) :] for word in words if word.startswith(_TEMPORARY.encode())
        ]
        # A relative path may be any directory, so it counts as this one.
        if not named or not os.path.isabs(named[-1]):
            named = [_DEFAULT] if not named else [str(directory)]
        if os.path.realpath(named[-1]) == os.path.realpath(directory):
            return True
    return False
