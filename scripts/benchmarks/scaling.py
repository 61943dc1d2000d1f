"""Do private interpreters scale as separate processes do?

Four configurations take turns in every round: one ordinary process; two
ordinary processes at once; one process with two private interpreters; one
ordinary process with two threads. The paper's Figure 5, at two cores.

Then the same of a packaged module that two threads of the process call, in their own
inference mode, as ``load_pickle`` gives it and as a movable object, beside two
processes that have the module themselves.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import report

HERE = Path(__file__).resolve().parent
WORKER = HERE / "scaling_worker.py"
SCALES = 1.8  # two processes below this times one: the machine itself does not scale


class Worker:
    """A process that runs loops on demand."""

    def __init__(self, mode: str, width: int, *arguments: str) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, str(WORKER), mode, str(width), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        if self._read() != "ready":
            raise RuntimeError(f"the {mode} process did not start")

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            raise RuntimeError(f"a benchmark process ended with status {self._process.wait()}")
        return line

    def begin(self, seconds: float, start: float) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds} {start}\n")
        self._process.stdin.flush()

    def count(self) -> int:
        return int(self._read())

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)


def rate(workers: list[Worker], seconds: float) -> float:
    """Iterations per second of all workers together."""
    start = time.time() + 0.05
    for worker in workers:
        worker.begin(seconds, start)
    return sum(worker.count() for worker in workers) / seconds


def measure(configurations: dict[str, list[Worker]], rounds: int, seconds: float) -> dict[str, list[float]]:
    """Each configuration's rates; a machine's speed drifts, so nobody is always first."""
    measured: dict[str, list[float]] = {name: [] for name in configurations}
    order = list(configurations)
    for round_number in range(rounds):
        turn = round_number % len(order)
        for name in order[turn:] + order[:turn]:
            measured[name].append(rate(configurations[name], seconds))
    for worker in {id(w): w for group in configurations.values() for w in group}.values():
        worker.stop()
    return measured


def pack(folder: str) -> str:
    """The tower's archive."""
    archive = f"{folder}/tower.ptpkg"
    command = [str(Path(sys.executable).with_name("interpool")), "pack", "tower:build", "-o", archive]
    subprocess.run(command, check=True, cwd=HERE, stdout=subprocess.DEVNULL)
    return archive


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="scripts/bench scaling")
    parser.add_argument("--rounds", type=int, default=9, help="rounds, all configurations in each")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of one measurement")
    options = parser.parse_args()

    first, second = Worker("process", 1), Worker("process", 1)
    configurations = {
        "one process": [first],
        "two processes": [first, second],
        "two interpreters": [Worker("pool", 2)],
        "two threads": [Worker("threads", 2)],
    }
    measured = measure(configurations, options.rounds, options.seconds)
    with tempfile.TemporaryDirectory() as folder:
        archive = pack(folder)
        packaged = {
            "packaged: one process": [tower := Worker("tower", 1)],
            "packaged: two processes": [tower, Worker("tower", 1)],
            "packaged: load_pickle": [Worker("load_pickle", 2, archive)],
            "packaged: movable object": [Worker("movable", 2, archive)],
        }
        measured |= measure(packaged, options.rounds, options.seconds)

    def ratio(over: str, under: str) -> float:
        pairs = zip(measured[over], measured[under], strict=True)
        return statistics.median(a / b for a, b in pairs)

    control = min(
        ratio("two processes", "one process"), ratio("packaged: two processes", "packaged: one process")
    )
    doubt = "" if control >= SCALES else f"two processes reach only {control:.2f} times one on this machine"
    report.finish(
        "scaling",
        measured,
        "iterations/s",
        [
            report.Bar("interpreters over processes", ratio("two interpreters", "two processes"), 0.95),
            report.Bar("interpreters over threads", ratio("two interpreters", "two threads"), 2.0),
            *(
                report.Bar(
                    f"packaged, {how} over processes",
                    ratio(f"packaged: {how}", "packaged: two processes"),
                    0.95,
                )
                for how in ("load_pickle", "movable object")
            ),
        ],
        doubt,
        control=control,
    )


if __name__ == "__main__":
    main()
