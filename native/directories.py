"""Determines whether threads can have their own working directories (``cpp/seam/apart_thread.h``)."""

from __future__ import annotations

from interpool.native import _native

WHY_NOT = "no thread can have a working directory of its own here"
REMEDY = "allow the system call clone without CLONE_FS, as Docker's default profile does"


def threads_have_directories() -> bool:
    """Return whether the system allows it; if not, all threads share the process's directory."""
    return _native.threads_have_directories()
