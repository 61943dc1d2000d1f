"""Loops that run at once, each in a thread, and a process that runs them on demand."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable

Loop = Callable[[float], float]
AtOnce = Callable[[float, float, int], float]  # seconds, start, width


def rate_of(call: Callable[[], object], seconds: float) -> float:
    """Calls a second, made one after another for that long; one at least."""
    count = 0
    start = time.perf_counter()
    while True:
        call()
        count += 1
        took = time.perf_counter() - start
        if took >= seconds:
            return count / took


def in_threads(loops: list[Loop]) -> AtOnce:
    """Runs as many of the loops as asked, each in a thread; gives the sum of their rates."""

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


def serve(prepare: Callable[[], tuple[str, AtOnce | None]], at_end: Callable[[], str] = lambda: "") -> None:
    """Say ``ready`` and what ``prepare`` says; then answer each line ``SECONDS START WIDTH`` with the rate.

    At the end of the input, say what ``at_end`` says. If ``prepare`` cannot import something, say so and end.
    A model may print, too: the benchmark is answered through a descriptor of its own.
    """
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        said, work = prepare()
    except ImportError as error:
        print(f"{type(error).__name__}: {error}".splitlines()[0], file=out, flush=True)
        sys.exit(1)
    print("ready", said, file=out, flush=True)
    for line in sys.stdin:
        seconds, start, width = line.split()
        assert work is not None
        print(work(float(seconds), float(start), int(width)), file=out, flush=True)
    print(at_end(), file=out, flush=True)


def wait_until(start: float) -> None:
    time.sleep(max(0.0, start - time.time()))
