"""What malloc keeps of the memory that models free.

A network asks for its activations in every call, and frees them. glibc returns memory at an arena's end to
the system once that is more than twice the largest block that was ever freed, and maps anew what is larger:
each page of it is a page fault in the next call, which can be a fifth of a network's CPU time. A host, which
does not know what it will serve, begins with what glibc itself would come to in the end.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping

# <malloc.h>
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
M_ARENA_MAX = -8

LARGEST_BLOCK = 32 << 20  # bytes; glibc takes no more
KEPT = 2 * LARGEST_BLOCK  # bytes at the end of each arena, as in glibc
# By default eight for each core: as every model has a thread in each interpreter, most would keep what one
# model has freed, where no other can have it. Hardly more threads than cores are in malloc at once.
ARENAS = 2  # for each core

# Whoever sets one of these knows better.
VARIABLES = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_ARENA_MAX")
TUNABLES = "glibc.malloc."


def keep_freed_memory(environment: Mapping[str, str] = os.environ) -> None:
    """Have malloc keep freed memory for the next call, unless the environment says what it is to do."""
    is_told = any(environment.get(name) for name in VARIABLES)
    if is_told or TUNABLES in environment.get("GLIBC_TUNABLES", ""):
        return
    libc = ctypes.CDLL(None)
    libc.mallopt(M_MMAP_THRESHOLD, LARGEST_BLOCK)
    libc.mallopt(M_TRIM_THRESHOLD, KEPT)
    libc.mallopt(M_ARENA_MAX, ARENAS * len(os.sched_getaffinity(0)))
