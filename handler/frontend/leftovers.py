"""Removes extracted models that a TorchServe has left behind which was killed.

TorchServe extracts each registered archive into the temporary directory, and removes it when the model is
unregistered or the server is stopped. Nobody removes what a killed server has extracted: its successor does.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from interpool.handler.frontend import shim
from interpool.handler.torchserve import FRONTEND_CLASS

_DEFAULT = "/tmp"  # Java's, whatever TMPDIR says
_EXTRACTED = re.compile(r"[0-9a-f]{32}")
_DOWNLOADED = re.compile(r"models\d+\.download")
_TEMPORARY = "-Djava.io.tmpdir="


def temporary_directory() -> Path:
    """Where a TorchServe that is started in this environment extracts archives."""
    return Path(os.environ.get("TEMP") or _DEFAULT)


def remove_leftovers(directory: Path) -> list[Path]:
    """Remove what is older than every living server that extracts into ``directory``; tells what it was.

    Only this user's. What was extracted while a living server ran may be that server's.
    """
    found = [(path, path.lstat()) for path in _extracted(directory)]
    # After they were listed: whoever has made one of these is found here, unless it has ended.
    oldest = min((_started(pid) for pid in _frontends(directory)), default=float("inf"))
    removed = []
    for path, status in found:
        if status.st_uid != os.getuid() or status.st_ctime >= oldest:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
        removed.append(path)
    return removed


def _extracted(directory: Path) -> Iterator[Path]:
    models = directory / "models"
    if not models.is_symlink() and models.is_dir():
        yield from (path for path in models.iterdir() if _EXTRACTED.fullmatch(path.name))
    with contextlib.suppress(OSError):
        yield from (path for path in directory.iterdir() if _DOWNLOADED.fullmatch(path.name))


def _frontends(directory: Path) -> Iterator[int]:
    """Of all users: the processes that extract into it."""
    for entry in os.listdir("/proc"):
        if not entry.isdecimal():
            continue
        try:
            words = Path("/proc", entry, "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if FRONTEND_CLASS.encode() not in words:
            continue
        named = [
            os.fsdecode(word)[len(_TEMPORARY) :] for word in words if word.startswith(_TEMPORARY.encode())
        ]
        # What is relative could be anywhere: then it counts.
        if not named or not os.path.isabs(named[-1]):
            named = [_DEFAULT] if not named else [str(directory)]
        if os.path.realpath(named[-1]) == os.path.realpath(directory):
            yield int(entry)


def _started(pid: int) -> float:
    """When a process started, in seconds since 1970; 0 for one that has ended meanwhile."""
    ticks = shim.process_start(pid)
    booted = next(
        (
            int(line.split()[1])
            for line in Path("/proc/stat").read_text().splitlines()
            if line.startswith("btime")
        ),
        0,
    )
    # A second less, as the time of boot is told in whole ones.
    return booted + int(ticks) / os.sysconf("SC_CLK_TCK") - 1 if ticks else 0.0
