"""Do private interpreters scale as separate processes do?

Four configurations take turns in every round: an ordinary process, two of them, one with two private
interpreters, an ordinary one with two threads. The paper's Figure 5, at two cores.

Then two threads of the process call a packaged module, in their own inference mode. They have it as
``load_pickle`` gives it and as a movable object, beside two processes that have the module themselves.

If Python's program has Python linked in, the processes run the shared libpython, as interpreters do
(shared/shared_python.py). What the program itself reaches is measured beside them.

With ``--models`` it is the paper's figure for models of the store: see scaling/suite.py. With ``--peer`` it
compares a free-threaded CPython with interpreters: see scaling/peer.py.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from benchmarks.scaling import peer, suite
from benchmarks.scaling.models import RECIPES, WIDE
from benchmarks.scaling.rounds import Configurations, doubt, measure, started
from benchmarks.shared import archiving, report, shared_python
from benchmarks.shared import peer as shared_peer
from benchmarks.shared.checkout import ROOT

MODELS = *RECIPES, *WIDE
PLOT = ROOT / "results" / "scaling-suite.svg"
LINKED_IN = "two processes, Python linked in"


def pack(folder: str) -> str:
    """The tower's archive."""
    archive = Path(folder) / "tower.ptpkg"
    archiving.pack("benchmarks.scaling.own_models:tower", archive)
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
    shared_peer.add_arguments(parser)
    options = parser.parse_args()
    if found := shared_peer.chosen(parser, options):
        peer.run(found, options.rounds, options.seconds)
    if options.models:
        models = [model for model in MODELS if {"all", model.name} & {*options.models}]
        widths = sorted({1, *options.threads})
        suite.run(models, widths, cores, options.rounds, options.seconds, options.plot)

    with tempfile.TemporaryDirectory() as folder:
        python = shared_python.embedding(Path(folder, "python")) if shared_python.is_linked_in() else None
        archive = pack(folder)

        def tiny() -> Configurations:
            first, second = (started("module", 1, "tiny", python=python) for _ in range(2))
            configurations = {
                "one process": ([first], 1),
                "two processes": ([first, second], 1),
                "two interpreters": ([started("interpreters", 2, "tiny")], 2),
                "two threads": ([started("module", 2, "tiny")], 2),
            }
            if python:
                configurations[LINKED_IN] = [started("module", 1, "tiny") for _ in range(2)], 1
            return configurations

        def packaged() -> Configurations:
            first, second = (started("module", 1, "tower", python=python) for _ in range(2))
            return {
                "packaged: one process": ([first], 1),
                "packaged: two processes": ([first, second], 1),
                "packaged: load_pickle": ([started("load_pickle", 2, "tower", archive)], 2),
                "packaged: movable object": ([started("movable", 2, "tower", archive)], 2),
            }

        measured = measure(tiny, options.rounds, options.seconds)
        measured |= measure(packaged, options.rounds, options.seconds)

    def ratio(over: str, under: str) -> float:
        return report.ratio(measured[over], measured[under])

    control = min(
        ratio("two processes", "one process"), ratio("packaged: two processes", "packaged: one process")
    )
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
        doubt(control),
        control=control,
    )


if __name__ == "__main__":
    main()
