"""Do private interpreters scale as separate processes do?

Four configurations take turns in every round: one ordinary process; two
ordinary processes at once; one process with two private interpreters; one
ordinary process with two threads. The paper's Figure 5, at two cores.

Then the same of a packaged module that two threads of the process call, in their own
inference mode, as ``load_pickle`` gives it and as a movable object, beside two
processes that have the module themselves.

Where Python's program has Python linked in, processes are compared that run the shared libpython, as
interpreters do (shared/shared_python.py); what the program itself reaches is measured beside them.

With ``--models`` it is the paper's figure for models of the store: see scaling/suite.py.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from benchmarks.scaling import suite
from benchmarks.scaling.models import RECIPES, WIDE
from benchmarks.shared import archiving, report, shared_python
from benchmarks.shared.checkout import ROOT
from benchmarks.shared.worker import Worker, counted

MODELS = *RECIPES, *WIDE
PLOT = ROOT / "results" / "scaling-suite.svg"
LINKED_IN = "two processes, Python linked in"
GENERATIONS = 3  # of processes
TOGETHER = "two interpreters", "two threads", "packaged: load_pickle", "packaged: movable object"
WIDTHS = dict.fromkeys(TOGETHER, 2)  # loops that one process runs at once
Configurations: TypeAlias = dict[str, list[Worker]]
SCALES = 1.8  # two processes below this times one: the machine itself does not scale


def started(*arguments: object, python: Path | None = None) -> Worker:
    """A process of the benchmark that has begun to wait."""
    worker = Worker("scaling.worker", *map(str, arguments), python=python)
    worker.wait_ready()
    return worker


def measure(start: Callable[[], Configurations], rounds: int, seconds: float) -> dict[str, list[float]]:
    """Each configuration's rates; a machine's speed drifts, so nobody is always first.

    Where a process's memory happens to lie makes it a little faster or slower for as long as it lives: each
    third of the rounds has processes of its own.
    """
    measured: dict[str, list[float]] = {}
    for generation in range(min(GENERATIONS, rounds)):
        configurations = start()
        order = list(configurations)
        for round_number in range(generation, rounds, GENERATIONS):
            turn = round_number % len(order)
            for name in order[turn:] + order[:turn]:
                width = WIDTHS.get(name, 1)
                rate = counted(configurations[name], seconds, width) / seconds
                measured.setdefault(name, []).append(rate)
        for worker in {id(w): w for group in configurations.values() for w in group}.values():
            worker.stop()
    return measured


def pack(folder: str) -> str:
    """The tower's archive."""
    archive = Path(folder) / "tower.ptpkg"
    archiving.pack("benchmarks.scaling.tower:build", archive)
    return str(archive)


def doubled(most: int) -> list[int]:
    """1, 2, 4, … and ``most``."""
    return sorted({most, *(2**power for power in range(most.bit_length()))})


def main() -> None:
    cores = os.cpu_count() or 1
    parser = report.parser("scaling", __doc__)
    parser.add_argument("--rounds", type=int, default=9, help="rounds, all configurations in each")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of one measurement")
    names = [model.name for model in MODELS]
    parser.add_argument(
        "--models", nargs="+", choices=["all", *names], metavar="NAME", help=f"all, or of {', '.join(names)}"
    )
    parser.add_argument(
        "--threads",
        type=int,
        nargs="+",
        default=doubled(2 * cores),
        help="with --models; 1 to twice the cores",
    )
    parser.add_argument("--plot", type=Path, default=PLOT, help="the figure of --models")
    options = parser.parse_args()
    if options.models:
        models = [model for model in MODELS if {"all", model.name} & {*options.models}]
        widths = sorted({1, *options.threads})
        suite.run(models, widths, cores, options.rounds, options.seconds, options.plot)

    with tempfile.TemporaryDirectory() as folder:
        python = shared_python.embedding(Path(folder, "python")) if shared_python.is_linked_in() else None
        archive = pack(folder)

        def tiny() -> Configurations:
            first, second = (started("process", 1, python=python) for _ in range(2))
            configurations = {
                "one process": [first],
                "two processes": [first, second],
                "two interpreters": [started("pool", 2)],
                "two threads": [started("threads", 2)],
            }
            if python:
                configurations[LINKED_IN] = [started("process", 1) for _ in range(2)]
            return configurations

        def packaged() -> Configurations:
            first, second = (started("tower", 1, python=python) for _ in range(2))
            return {
                "packaged: one process": [first],
                "packaged: two processes": [first, second],
                "packaged: load_pickle": [started("load_pickle", 2, archive)],
                "packaged: movable object": [started("movable", 2, archive)],
            }

        measured = measure(tiny, options.rounds, options.seconds)
        measured |= measure(packaged, options.rounds, options.seconds)

    def ratio(over: str, under: str) -> float:
        return report.ratio(measured[over], measured[under])

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
