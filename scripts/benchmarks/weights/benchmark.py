"""Weights in memory once, with any number of workers: what they cost in memory and in time.

There are a model of so many megabytes of float32 weights, and one without any. The pool, of two interpreters,
has it from a hermetic archive, stock TorchServe from an ordinary one with its state_dict. Both read every
page when they have loaded it. The servers take turns, a fresh one for each model and none beside it. Memory
that several processes share counts in each of them by its part. Each has served another model before.

The model is registered without workers, which is TorchServe's frontend alone, unpacking the archive. Then it
is registered anew with one worker, until its first right answer. The host sees to it that every interpreter
of the pool loads the model. Then its workers go from one to each number of them by ``PUT``, until each has
answered rightly. TorchServe's log says which worker gave which answer. With each number the memory of all
processes but TorchServe's frontend is read (proportional). The same number of workers of the model without
weights takes less. The difference, over the weights, is how many *copies* of them the server has.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from local_server import Answer, TorchServe
from waiting import wait_for

# None of these imports torch: this process would share its pages with the servers.
from benchmarks.shared import archiving, report
from benchmarks.shared.asking import Asker
from benchmarks.shared.checkout import program
from benchmarks.shared.memory import served_mb

SERVERS = POOL, STOCK = "pool", "stock"
INTERPRETERS = 2
BEFORE, MODEL = "before", "weights"  # models' names
TOUCHED = re.compile(rf"W-\d+-{MODEL}_1\.0-stdout .*? touched (\S+)")
PATIENCE_S = 600
HANDLER = "benchmarks.weights.handler"


@dataclass
class Figures:
    """Of one server with one model: a figure for each round."""

    unpacked_s: list[float] = field(default_factory=list)
    registered_s: list[float] = field(default_factory=list)
    scaled_s: dict[int, list[float]] = field(default_factory=dict)  # by the number of workers
    memory_mb: dict[int, list[float]] = field(default_factory=dict)


ByServer = dict[str, Figures]


# ---- measuring -------------------------------------------------------------------------------


def archive(megabytes: int, store: Path, form: str) -> list[float]:
    """``pool-SIZE.mar`` and ``stock-SIZE.mar``; gives what both are to answer."""
    os.environ["WEIGHTS_MB"] = str(megabytes)  # for model.py, in the processes that follow
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / f"{megabytes}.pt"
        wrote = subprocess.run(
            program("weights.model", str(state)), check=True, stdout=subprocess.PIPE, text=True
        )
        ordinary = archiving.ordinary(f"{HANDLER}:Stock", Path(folder), "benchmarks.weights.model")
        kinds = {
            STOCK: [*ordinary, "--serialized-file", str(state)],
            POOL: archiving.hermetic(f"{HANDLER}:build", Path(folder) / "weights.ptpkg"),
        }
        for server, arguments in kinds.items():
            archiving.archive(f"{server}-{megabytes}", store, [*arguments, "--archive-format", form])
    expected: list[float] = json.loads(wrote.stdout)
    return expected


class Turn:
    """One server's, with one model."""

    def __init__(self, running: TorchServe, expected: Sequence[float]) -> None:
        self._running = running
        self._expected = expected

    def unpack(self) -> float:
        """Seconds of a registration without workers."""
        begun = time.perf_counter()
        self._running.checked(self._register(0))
        took = time.perf_counter() - begun
        self._running.checked(self._running.unregister(MODEL))
        return took

    def register(self) -> float:
        """Seconds of a registration with one worker, until it has answered."""
        begun = time.perf_counter()
        self._running.checked(self._register(1))
        Asker(self._running, MODEL, self._expected).ask(1)
        return time.perf_counter() - begun

    def _register(self, workers: int) -> Answer:
        return self._running.register(
            f"{MODEL}.mar", model_name=MODEL, initial_workers=workers, timeout=PATIENCE_S
        )

    def wait_for_copies(self, count: int) -> None:
        """Until so many processes, or interpreters, have loaded the model and read all of its weights."""
        wait_for(
            lambda: len(set(TOUCHED.findall(self._running.model_log()))) >= count,
            f"{count} interpreters to have loaded the model",
        )

    def scale(self, workers: int) -> float:
        """Seconds from one worker to so many, until each of them has answered."""
        self._running.checked(self._running.scale(MODEL, 1, timeout=PATIENCE_S))
        asker = Asker(self._running, MODEL, self._expected)
        begun = time.perf_counter()
        self._running.checked(self._running.scale(MODEL, workers, timeout=PATIENCE_S))
        return asker.until(workers) - begun

    def serve_another(self, expected: Sequence[float]) -> None:
        """Another model, until it has answered: the pool's host is there then."""
        self._running.checked(self._running.register(f"{BEFORE}.mar", model_name=BEFORE, timeout=PATIENCE_S))
        Asker(self._running, BEFORE, expected).ask(1)
        if self._running.overlay:
            self._running.wait_for_interpreters(INTERPRETERS)
        self._running.checked(self._running.unregister(BEFORE))


def measure(
    server: str,
    megabytes: int,
    workers: list[int],
    archives: Path,
    expected: dict[int, list[float]],
    settle: float,
    figures: Figures,
) -> None:
    """One turn of a server."""
    environment = {"INTERPOOL_INTERPRETERS": str(INTERPRETERS)}
    with TorchServe(overlay=server == POOL, environment=environment) as running:
        for name, size in ((BEFORE, 0), (MODEL, megabytes)):
            os.link(archives / f"{server}-{size}.mar", running.store / f"{name}.mar")
        turn = Turn(running, expected[megabytes])
        turn.serve_another(expected[0])
        figures.unpacked_s.append(turn.unpack())
        figures.registered_s.append(turn.register())
        turn.wait_for_copies(INTERPRETERS if server == POOL else 1)
        for count in workers:
            if count > 1:
                figures.scaled_s.setdefault(count, []).append(turn.scale(count))
            time.sleep(settle)  # what was loaded and freed, and workers that were stopped
            figures.memory_mb.setdefault(count, []).append(served_mb(running))


# ---- reporting -------------------------------------------------------------------------------


def registrations(found: dict[int, ByServer]) -> list[dict[str, Any]]:
    """A row for each model, seconds."""
    return [
        {
            "megabytes": megabytes,
            **{f"{server}_s": figures.registered_s for server, figures in by_server.items()},
            **{f"{server}_unpacked_s": figures.unpacked_s for server, figures in by_server.items()},
        }
        for megabytes, by_server in found.items()
    ]


def table(found: dict[int, ByServer]) -> list[dict[str, Any]]:
    """A row for each model and number of workers; no copies without weights, no seconds to one worker."""
    rows = []
    for megabytes, by_server in found.items():
        for workers in by_server[POOL].memory_mb:
            row: dict[str, Any] = {"megabytes": megabytes, "workers": workers}
            for server, figures in by_server.items():
                memory, bare = figures.memory_mb[workers], found[0][server].memory_mb[workers]
                row[f"{server}_mb"] = memory
                row[f"{server}_copies"] = [
                    (one - other) / megabytes for one, other in zip(memory, bare, strict=True) if megabytes
                ]
                row[f"{server}_scaled_s"] = figures.scaled_s.get(workers, [])
            rows.append(row)
    return rows


def flat(found: dict[int, ByServer]) -> dict[str, list[float]]:
    """All figures, by what they are."""
    measured = {}
    for megabytes, by_server in found.items():
        for server, figures in by_server.items():
            what = f"{server}, {megabytes} MB"
            measured[f"{what}: unpacked, s"] = figures.unpacked_s
            measured[f"{what}: registered, s"] = figures.registered_s
            for workers, seconds in figures.scaled_s.items():
                measured[f"{what}: 1 to {workers} workers, s"] = seconds
            for workers, memory in figures.memory_mb.items():
                measured[f"{what}: {workers} workers, MB"] = memory
    return measured


def bars_of(found: dict[int, ByServer]) -> list[report.Bar]:
    """What is asked of the pool; of times, with the largest model and the most workers that it had."""
    largest = max(found)
    mine, bare = found[largest][POOL], found[0][POOL]
    bars = [
        report.Bar(
            f"{largest} MB: stock's registration over the pool's",
            report.ratio(found[largest][STOCK].registered_s, mine.registered_s),
            0.9,  # no slower: most of the time is the frontend's, which inflates the archive
        )
    ]
    if mine.scaled_s:
        most = max(mine.scaled_s)
        bars.append(
            report.Bar(
                f"1.5 x 1 to {most} workers without weights, over with {largest} MB",
                1.5 * report.ratio(bare.scaled_s[most], mine.scaled_s[most]),
                1.0,
            )
        )
    for megabytes, by_server in found.items():
        if megabytes:
            least = min(
                report.ratio([1.1 * megabytes + other for other in bare.memory_mb[workers]], memory)
                for workers, memory in by_server[POOL].memory_mb.items()
            )
            bars.append(
                report.Bar(f"1.1 x {megabytes} MB and a pool without weights, over the pool", least, 1.0)
            )
    return bars


# ---- the program -----------------------------------------------------------------------------


def numbers(text: str) -> list[int]:
    """``1,2,4``: from one on, in order."""
    found = sorted({int(each) for each in text.split(",")})
    if found[0] < 1:
        raise argparse.ArgumentTypeError(f"not from 1 on: {text}")
    return found


def workers_of(megabytes: int, workers: list[int], most_mb: int) -> list[int]:
    """The numbers with which stock's weights take no more than that; the first in any case."""
    return [count for count in workers if count == workers[0] or count * megabytes <= most_mb]


def main() -> None:
    parser = report.parser("weights", __doc__)
    parser.add_argument("--sizes", type=numbers, default=[100, 1000], help="megabytes, such as 100,1000")
    parser.add_argument("--workers", type=numbers, default=[1, 2, 4, 8], help="such as 1,2,4,8")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--most-mb", type=int, default=4000, help="what all workers' weights take in stock")
    parser.add_argument("--settle", type=float, default=3.0, help="seconds, before memory is read")
    parser.add_argument(
        "--archive-format", choices=("default", "zip-store"), default="default", help="the archiver's"
    )
    options = parser.parse_args()
    sizes = [0, *options.sizes]
    found: dict[int, ByServer] = {size: {server: Figures() for server in SERVERS} for size in sizes}
    with tempfile.TemporaryDirectory() as folder:
        archives = Path(folder)
        expected = {size: archive(size, archives, options.archive_format) for size in sizes}
        for round_number in range(options.rounds):
            for size in sizes:
                workers = workers_of(size, options.workers, options.most_mb)
                for server in SERVERS[:: 1 if round_number % 2 else -1]:
                    figures = found[size][server]
                    measure(server, size, workers, archives, expected, options.settle, figures)
                    print(
                        f"  round {round_number + 1}: {server}, {size} MB: registered in "
                        f"{figures.registered_s[-1]:.2f} s (unpacked in {figures.unpacked_s[-1]:.2f} s)",
                        flush=True,
                    )
    report.finish(
        "weights",
        flat(found),
        "",
        bars_of(found),
        registrations=registrations(found),
        table=table(found),
        options=vars(options),
    )


if __name__ == "__main__":
    main()
