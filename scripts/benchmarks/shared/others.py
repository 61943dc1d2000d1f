"""Whether a machine is quiet enough to measure: what processes of others use meanwhile."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable

import psutil

QUIET_MACHINE = 0.1  # cores that others may use


def doubt(others: list[float]) -> str:
    """Why a machine on which others used so many cores proves nothing; "" if it does."""
    most = max(others, default=0.0)
    return f"other processes used up to {most:.2f} cores" if most > QUIET_MACHINE else ""


class Others:
    """How many cores' worth of CPU time processes that are none of ours use.

    Args:
        ours: all of ours but this one.
    """

    def __init__(self, ours: Iterable[psutil.Process]) -> None:
        self._mine = [psutil.Process(), *ours]
        self._known: dict[int, float] = {}  # of those that have ended, what was read last
        self._begun = time.perf_counter(), self._used()

    def _used(self) -> float:
        times = psutil.cpu_times()
        busy = times.user + times.nice + times.system + times.softirq
        return busy - sum(map(self._taken, self._mine))

    def _taken(self, process: psutil.Process) -> float:
        """CPU time of one of ours; of this process, with that of children that have ended, as clients are."""
        with contextlib.suppress(psutil.NoSuchProcess):
            counted = 4 if process.pid == os.getpid() else 2
            self._known[process.pid] = sum(process.cpu_times()[:counted])
        return self._known.get(process.pid, 0.0)

    def cores(self) -> float:
        begun, used = self._begun
        return max(0.0, (self._used() - used) / (time.perf_counter() - begun))
