"""Working directories of single threads: models' calls and their exit functions have their own."""

from __future__ import annotations

import ctypes
import threading

_CLONE_FS = 0x200


def own_directory() -> bool:
    """Give the calling thread a working directory of its own; False where the system forbids it.

    The threads that it starts afterwards share it. A container's rules for system calls may forbid
    ``unshare``: Docker's do.
    """
    return bool(ctypes.CDLL(None, use_errno=True).unshare(_CLONE_FS) == 0)


def threads_have_directories() -> bool:
    """Whether threads of this process can have working directories of their own."""
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(own_directory()), name="directory")
    thread.start()
    thread.join()
    return found[0]
