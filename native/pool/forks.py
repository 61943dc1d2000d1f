"""Keeps forked processes from using the pools of the process from which they were forked."""

from __future__ import annotations

import os

from interpool.native.errors import SessionError

_process = 0  # the id of the one that opened a pool; 0: none did


def note_process() -> None:
    """Note that this process opens pools."""
    global _process
    _process = os.getpid()


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
