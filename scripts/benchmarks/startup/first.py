"""The first model of a server that has just started, and of one whose host was killed."""

from __future__ import annotations

import contextlib
import re
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from local_server import TorchServe

REQUESTS = 200
MANY = 64  # interpreters
BY_SERVE, BY_WORKER = "1", "0"  # INTERPOOL_START_AHEAD
RETRY = re.compile(r"Retry worker: \d+ in (\d+) seconds")

Ask = Callable[[TorchServe], None]  # one request; raises RuntimeError unless it is answered rightly


@contextlib.contextmanager
def just_started(name: str, archives: Path, **environment: str) -> Iterator[TorchServe]:
    with TorchServe(overlay=name == "pool", environment=environment) as running:
        shutil.copy(archives / f"{name}.mar", running.store / "tiny.mar")
        yield running


def first_answer(running: TorchServe, ask: Ask) -> float:
    """Seconds from the first registration until its first correct answer."""
    began = time.perf_counter()
    answer = running.register("tiny.mar", model_name="tiny", batch_size=1)
    if answer.status != 200:
        raise RuntimeError(answer.text)
    ask(running)
    return time.perf_counter() - began


def slowest(running: TorchServe, ask: Ask) -> float:
    """Of that many requests, one after another, the 99th percentile in seconds."""
    took = []
    for _ in range(REQUESTS):
        began = time.perf_counter()
        ask(running)
        took.append(time.perf_counter() - began)
    return statistics.quantiles(took, n=100)[98]


def after_a_kill(running: TorchServe, ask: Ask) -> float:
    """Seconds from a kill until the next correct answer, without what TorchServe's back-off took.

    Of the host, or of the model's one stock worker.
    """
    log = running.logs / "ts_log.log"
    before = log.stat().st_size
    if running.overlay:
        running.kill_host()
    else:
        for worker in running.shims():  # stock's workers have that script, too
            worker.kill()
    began = time.perf_counter()
    while True:
        try:
            ask(running)
            break
        except (RuntimeError, OSError):
            time.sleep(0.02)
    took = time.perf_counter() - began
    with log.open() as file:
        file.seek(before)
        # TorchServe writes each of its lines twice.
        return took - sum(map(int, RETRY.findall(file.read()))) / 2


def measure(archives: Path, ask: Ask, rounds: int) -> dict[str, list[float]]:
    """Seconds of all of it; a fresh server for each figure, of which nobody is always first."""
    figures: dict[str, tuple[str, dict[str, str]]] = {
        "stock: first": ("stock", {}),
        "pool: first, host by serve": ("pool", {"INTERPOOL_START_AHEAD": BY_SERVE}),
        "pool: first, host by its worker": ("pool", {"INTERPOOL_START_AHEAD": BY_WORKER}),
        f"pool: first of {MANY}, by its worker": (
            "pool",
            {"INTERPOOL_START_AHEAD": BY_WORKER, "INTERPOOL_INTERPRETERS": str(MANY)},
        ),
    }
    measured: dict[str, list[float]] = {
        name: []
        for name in (
            *figures,
            "pool: p99 at first",
            "pool: p99 later",
            "pool: after a kill",
            "stock: after a kill",
        )
    }
    order = list(figures)
    with just_started("pool", archives) as running:  # copies of libraries are made once
        first_answer(running, ask)
    for round_number in range(rounds):
        turn = round_number % len(order)
        for name in order[turn:] + order[:turn]:
            kind, environment = figures[name]
            with just_started(kind, archives, **environment) as running:
                measured[name].append(first_answer(running, ask))
                if environment == {"INTERPOOL_START_AHEAD": BY_SERVE}:
                    measured["pool: p99 at first"].append(slowest(running, ask))
                    running.wait_for_all_interpreters()
                    measured["pool: p99 later"].append(slowest(running, ask))
                    measured["pool: after a kill"].append(after_a_kill(running, ask))
                elif kind == "stock":
                    measured["stock: after a kill"].append(after_a_kill(running, ask))
    return measured
