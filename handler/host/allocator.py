"""How many arenas malloc has in a host. What they keep is the pool's business (``core/allocator.h``)."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping

M_ARENA_MAX = -8  # <malloc.h>
# By default eight for each core: as every model has a thread in each interpreter, most would keep what one
# model has freed, where no other can have it. Hardly more threads than cores are in malloc at once.
ARENAS = 2  # for each core


def limit_arenas(environment: Mapping[str, str] = os.environ) -> None:
    """Have malloc make few arenas, unless the environment says how many."""
    is_told = environment.get("MALLOC_ARENA_MAX") or "arena_max" in environment.get("GLIBC_TUNABLES", "")
    if not is_told:
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, ARENAS * len(os.sched_getaffinity(0)))
