"""Configurations that take turns in rounds, each of them processes that run loops."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from benchmarks.shared.worker import Worker, counted

GENERATIONS = 3  # of processes
SCALES = 1.8  # two processes below this times one: the machine itself does not scale
# By name: the processes, and how many loops each of them runs at once.
Configurations: TypeAlias = dict[str, tuple[list[Worker], int]]


def started(*arguments: object, python: Path | None = None) -> Worker:
    """A process of the benchmark that has begun to wait; raises RuntimeError if it cannot."""
    worker = Worker("scaling.worker", *map(str, arguments), python=python)
    try:
        worker.wait_ready()
    except RuntimeError:
        worker.kill()
        raise
    return worker


def measure(start: Callable[[], Configurations], rounds: int, seconds: float) -> dict[str, list[float]]:
    """Each configuration's rates; a machine's speed drifts, so none is always first.

    Each third of the rounds has processes of its own. The places of a process's memory make it a little
    faster or slower for as long as it lives.
    """
    measured: dict[str, list[float]] = {}
    for generation in range(min(GENERATIONS, rounds)):
        configurations = start()
        order = list(configurations)
        for round_number in range(generation, rounds, GENERATIONS):
            turn = round_number % len(order)
            for name in order[turn:] + order[:turn]:
                workers, width = configurations[name]
                measured.setdefault(name, []).append(counted(workers, seconds, width))
        for worker in {id(w): w for group, _ in configurations.values() for w in group}.values():
            worker.stop()
    return measured


def doubt(control: float) -> str:
    """Why a machine proves nothing on which two processes reach so many times one; "" if it does."""
    return "" if control >= SCALES else f"two processes reach only {control:.2f} times one on this machine"
