"""Whether threads can have working directories of their own (``cpp/seam/apart_thread.h``)."""

from __future__ import annotations

from interpool.native import _native

WHY_NOT = "no thread can have a working directory of its own here"
REMEDY = "allow the system call clone without CLONE_FS, as Docker's default profile does"


def threads_have_directories() -> bool:
    """Whether the system lets a thread have one; if not, all threads share the process's."""
    return _native.threads_have_directories()
