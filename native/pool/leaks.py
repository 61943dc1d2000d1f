"""Warns of leases that were not returned when their pool ends, with their objects' types and owners."""

from __future__ import annotations

import atexit
import warnings
from collections import Counter
from typing import TYPE_CHECKING

from interpool.native import _native
from interpool.native.pool.forks import is_forked
from interpool.native.pool.stacks import host_thread

if TYPE_CHECKING:
    from interpool.native.pool.states import OpenLease

PATIENCE_S = 0.5


def watch_process_end() -> None:
    """Warn at the process's end of open leases of managers that were never closed."""
    atexit.register(_at_process_end)


def warn_of_open_leases(pool: _native.Pool, when: str) -> None:
    """Issue one ResourceWarning that names the open leases of ``pool``, if there are any.

    Args:
        pool: the pool.
        when: the start of the message, such as "the process ended".
    """
    leases = pool.open_leases(PATIENCE_S)
    if leases:
        lines = "".join(f"\n  {_describe(lease)}" for lease in leases)
        warnings.warn(
            f"{when} with {len(leases)} leases not given back:{lines}", ResourceWarning, stacklevel=3
        )


def _describe(lease: OpenLease) -> str:
    owner = f"leased {lease['seconds']:.1f} s ago by {host_thread(lease['holder'])}"
    if not lease["session"]:
        return f"interpreter {lease['interpreter']}, {owner}, serves a connection"
    if not lease["answered"]:
        holds = "is busy, and what it holds is not known"
    elif lease["labels"]:
        counts = Counter(lease["labels"]).most_common()
        holds = "holds " + ", ".join(f"{count} x {label}" for label, count in counts)
    else:
        holds = "holds no objects"
    return f"interpreter {lease['interpreter']}, {owner}: its session was never closed and {holds}"


def _at_process_end() -> None:
    if is_forked():
        return  # a forked child has no threads that could answer
    for pool in _native.pools():
        if not pool.is_closed:
            warn_of_open_leases(pool, "the process ended")
