"""Several models at once: the same one under several names, each with workers of its own.

A framework that can have them in one server does; of the others a server for each is started, all at once.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from waiting import wait_for

from benchmarks.serving.frameworks import (
    FRAMEWORKS,
    PATIENCE_S,
    Order,
    Program,
    Server,
    WrongAnswerError,
    memory,
    posted,
    right_answer,
)
from benchmarks.serving.models import MODELS
from benchmarks.shared import http_load, report
from benchmarks.shared.others import Others

SETTLED_S = 5.0  # after the load: what was loaded and freed
# Seconds of load before the measurement, from which on the first of these bars count: the least of stock's
# rate, and of stock's time to start over ours. Before that, interpreters still load models, one by one.
WARM_S, WARM_BARS, FIRST_BARS = 8.0, (0.9, 3.0), (0.7, 2.5)


@dataclass
class Figures:
    """Of one framework with one kind of model, by round.

    Attributes:
        servers: how many there were.
        first_s: from the start command until each model had answered.
        all_s: until each worker of each model had.
        rate: answers a second, of all models together.
        mb: proportional memory of all processes.
    """

    servers: int = 0
    first_s: list[float] = field(default_factory=list)
    all_s: list[float] = field(default_factory=list)
    rate: list[float] = field(default_factory=list)
    mb: list[float] = field(default_factory=list)


@contextlib.contextmanager
def started(name: str, model: str, count: int, workers: int, folder: Path) -> Iterator[list[Server]]:
    """A framework's servers, with so many names of the model in all, each of which has answered."""
    framework = FRAMEWORKS[name]
    with contextlib.ExitStack() as running:
        if isinstance(framework, Program) and not framework.kind.several:
            with ThreadPoolExecutor(count) as threads:
                order = Order(model, workers, workers)
                begun = [
                    threads.submit(running.enter_context, framework(order, folder)) for _ in range(count)
                ]
            yield [each.result() for each in begun]
        else:
            names = tuple(f"{model}-{number}" for number in range(count))
            yield [running.enter_context(framework(Order(model, workers, workers, names), folder))]


def turn(
    model: str, name: str, folder: Path, options: argparse.Namespace, figures: Figures
) -> Iterator[float]:
    """Start, measure and stop a framework; gives the cores that other processes used under the load."""
    count, (workers,) = options.together, options.workers  # names of the model, and workers of each
    begun = time.perf_counter()
    with started(name, model, count, workers, folder) as servers:
        figures.servers = len(servers)
        figures.first_s.append(time.perf_counter() - begun)
        for server in servers:
            wait_for(
                lambda server=server: server.all_answer(workers),  # type: ignore[misc]
                "all workers' answers",
                seconds=PATIENCE_S,
            )
        figures.all_s.append(time.perf_counter() - begun)
        urls = [url for server in servers for url in server.urls]
        expected = [right_answer(model, url) for url in urls]

        def load(seconds: float) -> list[http_load.Met]:
            """What a client program for each model meets, all at once."""

            def one(url: str, answer: bytes) -> http_load.Met:
                body = posted(url, MODELS[model].question)
                return http_load.measure(url, body, "application/json", answer, workers, seconds)

            with ThreadPoolExecutor(count) as threads:
                return list(threads.map(one, urls, expected))

        load(options.warm)
        disturbed = Others([process for server in servers for process in server.processes()])
        met = load(options.seconds)
        yield disturbed.cores()
        for wrong in filter(None, (each.wrong for each in met)):
            raise WrongAnswerError(wrong)
        figures.rate.append(sum(each.rate for each in met))
        time.sleep(SETTLED_S)
        figures.mb.append(sum(sum(memory(server).values()) for server in servers))


def bars(figures: dict[str, dict[str, Figures]], ours: str, stock: str, warm: float) -> Iterator[report.Bar]:
    """What is asked of interpool, beside stock TorchServe, after ``warm`` seconds of load."""
    rate, start = WARM_BARS if warm >= WARM_S else FIRST_BARS
    for model, by_name in figures.items():
        if ours in by_name and stock in by_name:
            mine, other = by_name[ours], by_name[stock]
            for what, one, another, least in (
                (f"stock's memory over {ours}'s", other.mb, mine.mb, 3.0),
                (f"{ours}'s rate over stock's", mine.rate, other.rate, rate),
                (f"stock's time to start over {ours}'s", other.all_s, mine.all_s, start),
            ):
                yield report.Bar(f"{model}: {what}", report.ratio(one, another), least)
