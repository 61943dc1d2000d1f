"""Limits the number of malloc's arenas in a host. The pool handles what they keep (``core/allocator.h``)."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping

M_ARENA_MAX = -8  # <malloc.h>
# malloc's default is eight for each core. Every model has a thread in each interpreter. So most arenas would
# keep memory that one model has freed, and no other model could use that. Few arenas are enough: hardly more
# threads than there are cores are in malloc at once.
ARENAS = 2  # for each core


def limit_arenas(environment: Mapping[str, str] = os.environ) -> None:
    """Have malloc make few arenas, unless the environment sets their number."""
    is_told = environment.get("MALLOC_ARENA_MAX") or "arena_max" in environment.get("GLIBC_TUNABLES", "")
    if not is_told:
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, ARENAS * len(os.sched_getaffinity(0)))
