"""The paper's Figure 5 for the models of the store: threads that call a model at once, in five ways.

The first is one interpreter per thread. The second is all threads in one interpreter, which is ordinary
Python. The third is what TorchScript or torch.export makes of the model, if they can. The other two are what
is chosen today: a process each with weights of its own, and processes that were forked with the weights.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from math import exp, log
from pathlib import Path
from typing import NoReturn

import psutil

from benchmarks.scaling.models import Model
from benchmarks.shared import archiving, report
from benchmarks.shared.checkout import SUPPORT
from benchmarks.shared.curves import Curves, draw
from benchmarks.shared.turns import in_turns
from benchmarks.shared.worker import Worker, counted

INTERPRETERS, ONE, GRAPH, PROCESSES, FORKED = (
    "interpreters", "one interpreter", "graph", "processes", "forked processes",
)  # fmt: skip
# Seconds of CPU time for a call: below, more interpreter than arithmetic; above, the other way round.
SMALL, BIG = 0.005, 0.02
# Of what as many cores could do: a machine on which processes reach less proves nothing.
SCALES = 0.9


@dataclass
class OfProcesses(Curves):
    """One model's figures.

    Attributes:
        cpu: seconds of CPU time of all processes, for each call, for each way and width, by round.
        memory: proportional memory of all processes of a way, at the greatest width, in bytes.
    """

    cpu: dict[str, dict[int, list[float]]] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """CPU time of a call in a process: its own, without that of the machine's other processes."""
        return statistics.median(self.cpu[PROCESSES][1])


# ---- one model --------------------------------------------------------------------------------


def prepared(model: Model, folder: Path) -> list[str]:
    """Pack it, and have its source answer; gives the arguments of its workers."""
    if (script := model.root / "build_ops.py").exists():
        subprocess.run([sys.executable, script], check=True, stdout=subprocess.DEVNULL)
    archive, stock = folder / "m.ptpkg", folder / "stock"
    stock.mkdir(parents=True)
    source = [str(model.root), model.spec, str(stock)]
    archiving.pack(model.spec, archive, model.root)
    answer = [sys.executable, "-P", "-W", "ignore", str(SUPPORT / "stock_answer.py"), *source]
    subprocess.run(answer, check=True, stdout=subprocess.DEVNULL)
    return [*source, str(archive)]


def curves(model: Model, folder: Path, widths: list[int], rounds: int, seconds: float) -> OfProcesses:
    """Measure one model; all ways and widths take turns in each round."""
    arguments, most = prepared(model, folder), max(widths)
    found = OfProcesses(model.name)
    with ExitStack() as stack:

        def start(mode: str) -> Worker:
            worker = Worker("scaling.suite_worker", mode, str(most), *arguments)
            stack.callback(worker.kill)
            return worker

        alone = [start("source") for _ in range(most)]
        graph, pool, forked = start("graph"), start("interpreters"), start("forked")
        for worker in (*alone, pool, forked):
            worker.wait_ready()
        found.graph = graph.wait_ready()
        ways = {INTERPRETERS: [pool], ONE: alone[:1], GRAPH: [graph], PROCESSES: alone, FORKED: [forked]}
        if not found.graph:
            del ways[GRAPH]
        found.rates = {way: {width: [] for width in widths} for way in ways}
        found.cpu = {way: {width: [] for width in widths} for way in ways}
        for way, width in in_turns([(way, width) for width in widths for way in ways], rounds):
            workers, more = (alone[:width], 1) if way == PROCESSES else (ways[way], width)
            spent = -_cpu_seconds(workers)
            rate = counted(workers, seconds, more)
            spent += _cpu_seconds(workers)
            found.rates[way][width].append(rate)
            found.cpu[way][width].append(spent / (rate * seconds))
        found.memory = {way: _memory(workers) for way, workers in ways.items()}
        for worker in (*alone, graph, pool, forked):
            worker.stop()
    return found


def _memory(workers: list[Worker]) -> int:
    return sum(each.memory_full_info().pss for each in _processes(workers))


def _cpu_seconds(workers: list[Worker]) -> float:
    return sum(sum(each.cpu_times()[:2]) for each in _processes(workers))


def _processes(workers: list[Worker]) -> list[psutil.Process]:
    """Of all workers, and those that they have forked."""
    parents = [psutil.Process(worker.pid) for worker in workers]
    return [process for each in parents for process in (each, *each.children(recursive=True))]


# ---- all of them ------------------------------------------------------------------------------


def run(
    models: list[Model], widths: list[int], cores: int, rounds: int, seconds: float, plot: Path | None
) -> NoReturn:
    """Measure, draw, judge, and exit."""
    found = []
    for model in models:
        with tempfile.TemporaryDirectory(prefix="interpool-scaling-") as folder:
            found.append(curves(model, Path(folder), widths, rounds, seconds))
        print(line(found[-1], widths), flush=True)
    if plot is not None:
        draw([asdict(each) for each in found], plot)
    bars, control = judged(found, cores if cores in widths else max(widths))
    doubt = "" if control >= SCALES else f"processes reach only {control:.2f} of what these cores could do"
    measured = {f"{each.model}: {name}": values for each in found for name, values in each.by_name().items()}
    suite = [asdict(each) for each in found]
    report.finish("scaling-suite", measured, "calls/s", bars, doubt, control=control, suite=suite)


def line(found: OfProcesses, widths: list[int]) -> str:
    """Rates of a model, at all widths."""
    ways = {
        way: "/".join(f"{statistics.median(by_width[width]):.4g}" for width in widths)
        for way, by_width in found.rates.items()
    }
    words = ", ".join(f"{way} {rates}" for way, rates in ways.items())
    return f"{found.model} ({found.graph or 'no graph'}), calls/s at {'/'.join(map(str, widths))}: {words}"


def judged(found: list[OfProcesses], width: int) -> tuple[list[report.Bar], float]:
    """The bars, at that width, and how well the machine itself scales: 1 is as well as its cores could."""
    over = [each.ratio((INTERPRETERS, width), (PROCESSES, width)) for each in found]
    bars = [report.Bar("interpreters over processes, mean of all models", mean(over), 0.95)]
    least, model = min(zip(over, (each.model for each in found), strict=True))
    # The least of seventeen is also the unluckiest: on shared cores, a model's rounds differ by half.
    bars.append(report.Bar(f"interpreters over processes, the least of all models ({model})", least, 0.75))
    small = [each for each in found if each.seconds < SMALL]
    big = [each for each in found if each.seconds >= BIG and each.graph in ("script", "trace")]
    if small and width > 1:
        over = [each.ratio((INTERPRETERS, width), (ONE, width)) for each in small]
        names = ", ".join(each.model for each in small)
        bars.append(report.Bar(f"interpreters over one interpreter, small models ({names})", mean(over), 2.0))
    if big:
        over = [each.ratio((INTERPRETERS, width), (GRAPH, width)) for each in big]
        names = ", ".join(each.model for each in big)
        bars.append(report.Bar(f"interpreters over TorchScript, big models ({names})", mean(over), 0.98))
    scaled = [each.ratio((PROCESSES, width), (PROCESSES, 1)) / width for each in found]
    return bars, mean(scaled)


def mean(ratios: list[float]) -> float:
    """Geometric."""
    return exp(sum(map(log, ratios)) / len(ratios))
