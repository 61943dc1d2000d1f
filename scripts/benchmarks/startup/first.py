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

from benchmarks.shared.turns import in_turns

REQUESTS = 200
MANY = 64  # interpreters
STOCK, BY_SERVE, BY_WORKER = "stock: first", "pool: first, host by serve", "pool: first, host by its worker"
OF_MANY = f"pool: first of {MANY}, by its worker"
# By what is measured: the server, and its settings.
FIRST: dict[str, tuple[str, dict[str, str]]] = {
    STOCK: ("stock", {}),
    BY_SERVE: ("pool", {"INTERPOOL_START_AHEAD": "1"}),
    BY_WORKER: ("pool", {"INTERPOOL_START_AHEAD": "0"}),
    OF_MANY: ("pool", {"INTERPOOL_START_AHEAD": "0", "INTERPOOL_INTERPRETERS": str(MANY)}),
}
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
    running.checked(running.register("tiny.mar", model_name="tiny", batch_size=1))
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
    """Seconds of all of it; a fresh server for each figure."""
    measured: dict[str, list[float]] = {name: [] for name in FIRST}
    with just_started("pool", archives) as running:  # copies of libraries are made once
        first_answer(running, ask)

    def note(name: str, seconds: float) -> None:
        measured.setdefault(name, []).append(seconds)

    for name in in_turns(list(FIRST), rounds):
        kind, environment = FIRST[name]
        with just_started(kind, archives, **environment) as running:
            note(name, first_answer(running, ask))
            if name == BY_SERVE:
                note("pool: p99 at first", slowest(running, ask))
                running.wait_for_all_interpreters()
                note("pool: p99 later", slowest(running, ask))
            if name in (BY_SERVE, STOCK):
                note(f"{kind}: after a kill", after_a_kill(running, ask))
    return measured
