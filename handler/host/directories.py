"""Threads of the host that run models have working directories of their own: a model changes its thread's."""

from __future__ import annotations

import threading

from interpool.native.directories import own_directory

__all__ = ["own_directory", "threads_have_directories"]


def threads_have_directories() -> bool:
    """Whether threads of this process can have working directories of their own."""
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(own_directory()), name="directory")
    thread.start()
    thread.join()
    return found[0]
