"""How memory and latency grow with models, and with workers: one host, the pool and stock TorchServe.

Models go from one to a hundred, each with a few workers, then one model's workers from one to sixty-four. At
each step each model is asked, the answers are checked, and then the memory of all processes is read
(proportional), TorchServe's frontend apart; a client asks one model after another, for the latency.

Stock workers are alike, so where there would be more of them than ``--stock-workers``, their memory is
computed from the line through those that were measured; latencies are not. From the same measurements
follows what a host, a model and a worker take, and how many machines a load needs (growth/parts.py,
docs/growth.md).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
import torch
from local_server import TorchServe

from benchmarks.growth.parts import MACHINE, of_fewest_interpreters, parts_of, table
from benchmarks.growth.plot import draw
from benchmarks.shared import report, tiny_archives
from benchmarks.shared.clients import percentile
from benchmarks.shared.server_memory import served
from benchmarks.shared.tiny import WIDTH, TinyMLP

MB = 1e6
FEW, MORE = 2, 4  # interpreters
Step = tuple[int, int]  # models, workers of each


def upwards(most: int, steps: tuple[int, ...]) -> list[int]:
    """The steps up to the most, and that."""
    return sorted({*(step for step in steps if step < most), most})


class Growing:
    """A server to which models and workers are added."""

    def __init__(self, running: TorchServe) -> None:
        self._running = running
        self._there: dict[str, int] = {}
        with torch.inference_mode():
            self._expected = TinyMLP()(torch.ones(1, WIDTH))[0]

    def grow(self, models: int, workers: int) -> float:
        """Have so many models with so many workers each, and no others; the seconds that took."""
        wanted = {f"m{number}": workers for number in range(models)}
        begun = time.perf_counter()
        for name in [name for name in self._there if name not in wanted]:
            self._told(self._running.unregister(name))
            del self._there[name]
        for name in wanted:
            if name not in self._there:
                self._told(self._running.register("tiny.mar", model_name=name, initial_workers=workers))
            elif self._there[name] != workers:
                self._told(self._running.scale(name, workers))
            self._there[name] = workers
        return time.perf_counter() - begun

    def _told(self, answer: Any) -> None:
        if answer.status not in (200, 202):
            raise RuntimeError(f"{answer.text}\n{self._running.model_log()[-3000:]}")

    def ask(self, requests: int) -> list[float]:
        """Seconds that each of so many requests took, of one model after another."""
        took = []
        names = list(self._there)
        for number in range(requests):
            begun = time.perf_counter()
            answer = self._running.predict(names[number % len(names)], {"id": number}, timeout=120)
            took.append(time.perf_counter() - begun)
            if answer.status != 200 or not torch.allclose(
                torch.tensor(answer.json), self._expected, atol=1e-6
            ):
                raise RuntimeError(f"a wrong answer: {answer.status} {answer.text}")
        return took


def grown(
    server: str, archives: Path, steps: list[Step], requests: int, settle: float, interpreters: int
) -> list[dict[str, Any]]:
    """A row for each step."""
    rows = []
    environment = {"INTERPOOL_INTERPRETERS": str(interpreters)}
    with TorchServe(overlay=server == "pool", environment=environment) as running:
        (running.store / "tiny.mar").write_bytes((archives / f"{server}.mar").read_bytes())
        growing = Growing(running)
        for models, workers in steps:
            seconds = growing.grow(models, workers)
            growing.ask(2 * models * workers)  # each worker has answered, or nearly so
            time.sleep(settle)  # what was loaded and freed
            took = growing.ask(max(requests, models))
            rows.append(
                {
                    "server": server,
                    "models": models,
                    "workers": workers,
                    "interpreters": interpreters if server == "pool" else 0,
                    "memory_mb": served(running),
                    "frontend_mb": running.frontend.memory_full_info().pss / MB,
                    "grown_s": seconds,
                    "p50_ms": percentile(took, 0.5) * 1000,
                    "p99_ms": percentile(took, 0.99) * 1000,
                    "computed": False,
                }
            )
            print(line(rows[-1]), flush=True)
    return rows


def line(row: dict[str, Any]) -> str:
    latency = "" if row["computed"] else f", p50 {row['p50_ms']:.1f} ms, p99 {row['p99_ms']:.1f} ms"
    how = " (computed)" if row["computed"] else ""
    return (
        f"  {row['server']:<5} {row['models']:3} models x {row['workers']:2} workers: "
        f"{row['memory_mb']:8,.0f} MB{how}{latency}"
    )


def with_computed(rows: list[dict[str, Any]], steps: list[Step]) -> list[dict[str, Any]]:
    """Stock's rows, and those of the steps that were not measured, from the line through those that were."""
    fewest, most = (choose(rows, key=lambda row: row["models"] * row["workers"]) for choose in (min, max))
    apart = most["models"] * most["workers"] - fewest["models"] * fewest["workers"]
    one = (most["memory_mb"] - fewest["memory_mb"]) / apart if apart else fewest["memory_mb"]
    measured = {(row["models"], row["workers"]) for row in rows}
    computed = [
        {
            "server": "stock",
            "models": models,
            "workers": workers,
            "interpreters": 0,
            "memory_mb": fewest["memory_mb"]
            + one * (models * workers - fewest["models"] * fewest["workers"]),
            "frontend_mb": most["frontend_mb"],
            "computed": True,
        }
        for models, workers in steps
        if (models, workers) not in measured
    ]
    return [*rows, *computed]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        prog="scripts/bench growth",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--models", type=int, default=100, help="the most")
    parser.add_argument("--workers", type=int, default=64, help="the most, of one model")
    parser.add_argument("--each", type=int, default=2, help="workers of each, where models are added")
    parser.add_argument("--stock-workers", type=int, default=8, help="the most that are really started")
    parser.add_argument("--requests", type=int, default=200, help="for the latency, at each step")
    parser.add_argument("--settle", type=float, default=3.0, help="seconds, at each step")
    options = parser.parse_args()
    torch.set_num_threads(1)
    by_models = [(models, options.each) for models in upwards(options.models, (1, 2, 5, 10, 20, 50))]
    by_workers = [(1, workers) for workers in upwards(options.workers, (1, 2, 4, 8, 16, 32))]
    by_workers = [step for step in by_workers if step not in by_models]
    steps = [*by_models, *by_workers]
    with tempfile.TemporaryDirectory() as folder:
        tiny_archives.archive(Path(folder), Path(folder))

        def rows_of(server: str, most: float) -> list[dict[str, Any]]:
            """On a server of its own for models, and for workers: neither finds what the other has left."""
            rows: list[dict[str, Any]] = []
            for some in (by_models, by_workers):
                real = [step for step in some if step[0] * step[1] <= most]
                if real:
                    rows += grown(server, Path(folder), real, options.requests, options.settle, FEW)
            return rows

        pool = rows_of("pool", float("inf"))
        # The same once more with more interpreters, which the machines of the table have.
        again = by_models[:1], options.requests, options.settle, MORE
        pool += grown("pool", Path(folder), *again)
        stock = with_computed(rows_of("stock", options.stock_workers), steps)
    for row in stock:
        if row["computed"]:
            print(line(row))
    rows = [*pool, *stock]
    parts = parts_of(rows)
    for name, each in parts.items():
        print(
            f"  {name}: frontend {each.frontend:.0f} MB, {each.frontend_worker:.2f} a worker; "
            f"base {each.base:.0f} MB, an interpreter {each.interpreter:.0f} MB, "
            f"a model in it {each.model:.2f} MB, a worker {each.worker:.2f} MB"
        )
    print(f"machines of {MACHINE.cores} cores and {MACHINE.memory / 1000:.0f} GB:")
    print(table(parts))
    report.RESULTS.mkdir(parents=True, exist_ok=True)
    print(f"plot: {draw(rows, report.RESULTS / 'growth.svg')}")
    most = max(steps, key=lambda step: step[0] * step[1])
    memory_of = {
        (row["server"], row["models"], row["workers"]): row["memory_mb"]
        for row in of_fewest_interpreters(rows)
    }
    report.finish(
        "growth",
        {
            f"{row['server']}: {row['models']} x {row['workers']}, {row['interpreters']} interpreters": [
                row["memory_mb"]
            ]
            for row in rows
        },
        "MB",
        [
            report.Bar("5 MB over a model in an interpreter", 5 / max(1e-3, parts["pool"].model), 1.0),
            report.Bar("5 MB over a worker of the pool's", 5 / max(1e-3, parts["pool"].worker), 1.0),
            report.Bar(
                f"stock over pool, {most[0]} x {most[1]}",
                memory_of["stock", *most] / memory_of["pool", *most],
                1.0,
            ),
        ],
        table=rows,
        parts={name: asdict(each) for name, each in parts.items()},
        memory_of_the_machine_mb=psutil.virtual_memory().total / MB,
        options=vars(options),
    )


if __name__ == "__main__":
    main()
