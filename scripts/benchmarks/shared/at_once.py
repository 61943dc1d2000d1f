"""Loops that run at once, each in a thread, and what all of them reach."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

Loop = Callable[[float], float]
AtOnce = Callable[[float, float, int], float]  # seconds, start, width


def in_threads(loops: list[Loop]) -> AtOnce:
    """Runs as many of the loops as it is told, each in a thread; gives the sum of their rates."""

    def at_once(seconds: float, start: float, width: int) -> float:
        rates = [0.0] * width

        def run(index: int) -> None:
            wait_until(start)
            rates[index] = loops[index](seconds)

        threads = [threading.Thread(target=run, args=(index,)) for index in range(width)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(rates)

    return at_once


def wait_until(start: float) -> None:
    time.sleep(max(0.0, start - time.time()))
