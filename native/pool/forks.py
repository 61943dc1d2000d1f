"""Keeps forked processes from using the pools of the process from which they were forked."""

from __future__ import annotations

import os
from typing import Any

from interpool.native._native import MovableObject, OpenPackage, Pool
from interpool.native.errors import SessionError

_process = 0  # the id of the one that opened a pool; 0: none did


def note_process() -> None:
    """Note that this process opens pools."""
    global _process
    if not _process:
        os.register_at_fork(after_in_child=_refuse_uses)
    _process = os.getpid()


def _refuse_uses() -> None:
    """Have all uses of pools and of what they hold raise in this process, which was just forked."""
    for one in (Pool, OpenPackage, MovableObject):
        for name, member in vars(one).copy().items():
            if not name.startswith("_") or name in ("__call__", "__len__"):
                setattr(one, name, property(_refused) if isinstance(member, property) else _refused)


def _refused(*_args: Any, **_kwargs: Any) -> None:
    refuse_in_fork()


def is_forked() -> bool:
    """Return whether this process was forked from one that had opened a pool."""
    return _process not in (0, os.getpid())


def refuse_in_fork() -> None:
    """Refuse to use a pool in a forked process. It has none of the pool's threads, so it might wait for ever.

    Raises:
        SessionError: this is such a process.
    """
    if is_forked():
        raise SessionError(
            f"process {os.getpid()} was forked from process {_process}, which had opened a pool, and has "
            "none of the pool's threads. Open the pool after the fork (with gunicorn: without --preload), or "
            "start processes with multiprocessing's spawn or forkserver"
        )
