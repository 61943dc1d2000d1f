"""What an interpreter costs, and from how many workers on the pool is smaller than stock TorchServe.

A process starts two interpreters and then further ones. It measures what each of those adds, bare and with
BERT loaded and asked, its weights not counted, with lean imports and with full ones. It also measures what as
many Python processes take that have the same. Then both servers serve the same small model under several
names with several workers each: proportional memory of all processes but TorchServe's frontend. Stock workers
are alike. So what more than ``--stock-workers`` of them take is computed from the line through those that
were measured. At last both serve ordinary archives, each a handler with a small BERT of transformers':
memory, and time to register them.

With ``--peer`` it measures only what a further thread of a free-threaded CPython takes, beside a further
interpreter and a further process.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import psutil
from local_server import TorchServe

from benchmarks.memory import handlers
from benchmarks.shared import archiving, peer, report
from benchmarks.shared.checkout import program
from benchmarks.shared.memory import pss_mb, served_mb
from benchmarks.shared.worker import Worker

HANDLERS = 10  # ordinary archives


def interpreters(further: int, full: bool) -> dict[str, float]:
    """What process.py measured."""
    return _printed(program("memory.process", str(further)), INTERPOOL_FULL_IMPORT=str(int(full)))


def _printed(command: list[str], **environment: str) -> dict[str, Any]:
    """The JSON that such a process printed."""
    done = subprocess.run(
        command,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def processes(count: int) -> dict[str, float]:
    """What a Python process of its own takes that has the same, one of so many, MB (PSS); its weights too."""
    found = {}
    for what in ("bare", "BERT"):
        there = [Worker("memory.guest", what) for _ in range(count)]
        for process in there:
            process.wait_ready()
        taken = [pss_mb([psutil.Process(process.pid)]) for process in there]
        for process in there:
            process.stop()
        found[f"{what}: pss, MB"] = statistics.median(taken)
    return found


def in_rounds(rounds: int, **kinds: Callable[[], dict[str, float]]) -> dict[str, list[float]]:
    """What each kind costs, in each round; the kinds take turns."""
    measured: dict[str, list[float]] = {}
    for _ in range(rounds):
        for kind, cost in kinds.items():
            for what, value in cost().items():
                measured.setdefault(f"{kind}, {what}", []).append(value)
    return measured


def compare(beside: peer.Peer, rounds: int, further: int) -> NoReturn:
    """Measure a further thread of the peer, interpreter and process, print, keep, and exit; without bars."""
    found: list[dict[str, Any]] = []

    def threads() -> dict[str, float]:
        command = program("memory.threads", str(further), flags=("-W", "ignore"), python=beside.python)
        found.append(_printed(command))
        return {what: value for what, value in found[-1].items() if what.endswith(", MB")}

    measured = in_rounds(
        rounds,
        lean=lambda: interpreters(further, full=False),
        process=lambda: processes(further),
        thread=threads,
    )
    label = beside.label({each["said"] for each in found}, {each["ended"] for each in found})
    measured = {name.replace("thread", f"thread ({label})"): values for name, values in measured.items()}
    left_out = {"BERT": found[0]["missing"]} if found[0]["missing"] else {}
    for what, reason in left_out.items():
        print(f"  {what}: {beside.name} cannot run it: {reason}")
    report.finish("memory-peer", measured, "", [], peer=beside.kept(), left_out=left_out)


def serve(name: str, archives: Path, grid: list[tuple[int, int]]) -> dict[tuple[int, int], float]:
    """The memory for each number of models and of workers of each, after each worker was asked."""
    found = {}
    with TorchServe(overlay=name == "pool") as running:
        (running.store / "tiny.mar").write_bytes((archives / f"{name}.mar").read_bytes())
        there: dict[str, int] = {}
        for models, workers in sorted(grid):
            for model in [f"m{number}" for number in range(models)]:
                if model not in there:
                    running.checked(running.register("tiny.mar", model_name=model, initial_workers=workers))
                elif there[model] != workers:
                    running.checked(running.scale(model, workers))
                there[model] = workers
            for model in there:
                for number in range(2 * workers):
                    running.checked(running.predict(model, {"id": number}, timeout=120))
            time.sleep(3)  # until memory that loading has freed is given back
            found[models, workers] = served_mb(running)
    return found


def main() -> None:
    parser = report.parser("memory", __doc__)
    parser.add_argument("--rounds", type=int, default=3, help="of interpreters")
    parser.add_argument("--further", type=int, default=4, help="interpreters that are measured")
    parser.add_argument("--models", type=int, nargs="*", default=[1, 2, 10, 50])
    parser.add_argument("--workers", type=int, nargs="*", default=[2, 4, 8])
    parser.add_argument("--stock-workers", type=int, default=8, help="the most that are really started")
    peer.add_arguments(parser)
    options = parser.parse_args()
    if beside := peer.chosen(parser, options):
        compare(beside, options.rounds, options.further)
    measured = in_rounds(
        options.rounds,
        lean=lambda: interpreters(options.further, full=False),
        full=lambda: interpreters(options.further, full=True),
        process=lambda: processes(options.further),
    )
    cost = {what: statistics.median(values) for what, values in measured.items()}
    bars = [
        report.Bar("50 MB over a bare interpreter, PSS", 50 / cost["lean, bare: pss, MB"], 1.0),
        report.Bar("50 MB over a bare interpreter, dirty", 50 / cost["lean, bare: dirty, MB"], 1.0),
        report.Bar(
            "a process with BERT over an interpreter with it, PSS",
            cost["process, BERT: pss, MB"] / cost["lean, BERT: pss, MB"],
            1.2,
        ),
        report.Bar(
            "CPU time until ready, full imports over lean ones",
            cost["full, ready, s of CPU"] / cost["lean, ready, s of CPU"],
            2.0,
        ),
    ]
    grid = [(models, workers) for models in options.models for workers in options.workers]
    table: list[dict[str, float | bool]] = []
    if grid:
        with tempfile.TemporaryDirectory() as folder:
            archiving.archive_tiny(Path(folder), Path(folder))
            pool = serve("pool", Path(folder), grid)
            real = sorted(
                {(1, 1), (1, 2)} | {each for each in grid if each[0] * each[1] <= options.stock_workers}
            )
            stock = serve("stock", Path(folder), real)
        most = max(real, key=lambda each: each[0] * each[1])
        one = (stock[most] - stock[1, 1]) / (most[0] * most[1] - 1)
        for models, workers in grid:
            computed = stock[1, 1] + one * (models * workers - 1)
            line = {
                "models": models,
                "workers": workers,
                "pool, MB": pool[models, workers],
                "stock, MB": stock.get((models, workers), computed),
                "stock computed": (models, workers) not in stock,
            }
            table.append(line)
            mark = "computed" if line["stock computed"] else "measured"
            print(
                f"  {models:3} models x {workers} workers: pool {line['pool, MB']:6.0f} MB, "
                f"stock {line['stock, MB']:6.0f} MB ({mark})"
            )
        print(f"  one more stock worker: {one:.0f} MB; one, {stock[1, 1]:.0f} MB; two, {stock[1, 2]:.0f} MB")
        least = min(grid, key=lambda each: each[0] * each[1])
        bars.append(report.Bar("stock over pool, fewest workers", table[0]["stock, MB"] / pool[least], 1.0))
    ordinary = handlers.measure(HANDLERS, 2)
    each = (
        f"{name} {ordinary[f'{name}, MB']:.0f} MB in {ordinary[f'{name}, s']:.0f} s"
        for name in ("pool", "stock")
    )
    print(f"  {HANDLERS} ordinary handlers x 2 workers: {', '.join(each)}")
    ratio = 0.13 * ordinary["stock, MB"] / ordinary["pool, MB"]
    bars.append(report.Bar("0.13 of stock's over the pool's, ordinary handlers", ratio, 1.0))
    report.finish("memory", measured, "", bars, table=table, ordinary=ordinary, options=vars(options))


if __name__ == "__main__":
    main()
