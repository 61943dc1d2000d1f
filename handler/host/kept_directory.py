"""Keeps a model's directory as it was before a trial, and restores it for the stock worker that takes over.

A handler may use up its archive when it is loaded: it may unpack a zip and remove it, for example.
TorchServe's worker does that once, and the trial must not do it first. So the tree is kept as hard links
beside the directory. A hard link shows what is written into a file in place. So small files, in which that
may happen, are copied.

A host that ends in a trial leaves the kept tree, and the next host restores the directory. If there is no
next host, `interpool serve` removes the tree (frontend/leftovers.py).
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from types import TracebackType
from typing import Self

from interpool.handler.frontend.leftovers import KEPT

_COPIED = 1 << 20  # bytes: the largest file that is copied


class KeptDirectory:
    """Keeps a directory while it is entered.

    Args:
        directory: its absolute path. If it is a link, nothing is kept. TorchServe makes a link for an archive
            that is a folder, and that folder belongs to its owner.

    Raises:
        OSError: the file system has no room, or no links. It is raised when the directory is entered.
    """

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)
        self._beside = self._directory.with_name(f"{KEPT}{self._directory.name}")
        self._kept = self._beside / "kept"
        self._incomplete = self._beside / "incomplete"

    def __enter__(self) -> Self:
        if not self._directory.is_symlink():
            self.put_back()  # a host may have ended in an earlier trial
            self.remove()
            self._beside.mkdir(mode=0o700)
            try:
                shutil.copytree(self._directory, self._incomplete, symlinks=True, copy_function=_keep)
                self._incomplete.rename(self._kept)
            except BaseException:
                self.remove()
                raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def remove(self) -> None:
        """Remove what is kept of the directory, if anything is."""
        with contextlib.suppress(OSError):
            self._kept.rename(self._incomplete)
        shutil.rmtree(self._beside, ignore_errors=True)

    def put_back(self) -> None:
        """Have the directory hold what it held, and nothing else. Call it once at most.

        The directory itself stays the same, because processes work in it. If it is gone, the model was
        unregistered, and nothing is done.

        Raises:
            OSError: the directory cannot be restored.
        """
        if not (self._kept.is_dir() and self._directory.is_dir()):
            return
        for entry in list(os.scandir(self._directory)):
            shutil.rmtree(entry) if entry.is_dir(follow_symlinks=False) else os.unlink(entry)
        for entry in list(os.scandir(self._kept)):
            os.rename(entry, self._directory / entry.name)


def _keep(source: str, target: str) -> None:
    """Copy or link one file, as ``shutil.copytree`` asks."""
    if os.stat(source).st_size <= _COPIED:
        shutil.copy2(source, target)
    else:
        os.link(source, target)
