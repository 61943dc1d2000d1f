"""Proportional memory (PSS) of processes: what several share counts in each of them by its part."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

import psutil
from local_server import TorchServe

MB = 1e6


def pss_mb(processes: Iterable[psutil.Process]) -> float:
    """Of all of them, in MB (10⁶ bytes); those that have ended meanwhile take nothing."""
    total = 0.0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            total += process.memory_full_info().pss / MB
    return total


def served_mb(running: TorchServe) -> float:
    """Of all that the server has started, without its frontend."""
    return pss_mb(process for process in running.processes() if process != running.frontend)
