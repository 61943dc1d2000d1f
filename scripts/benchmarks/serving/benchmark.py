"""The same models over HTTP: interpool, stock TorchServe, and what else serves Python models today.

Each framework serves its models as its documentation says for CPUs. They are a small, a medium and a waiting
one, a small one with megabytes as requests, and one that answers batches of eight. FastAPI and BentoML
answer one request at a time. LitServe, mosec, Ray Serve and BentoML are installed into environments of the
benchmark's own when they are first needed. In each round all frameworks take turns with each model, beginning
with another one each time. As they do not fit into memory together, each is started for its turn, with one
worker, and stopped after it. So the time until it answers is measured anew each time. It is then scaled to
the largest number of workers, and from there to the others. Twice as many clients ask as the workers take
requests. Every answer is checked: the first one against the model in this process, the others byte by byte
against the first one.

Memory is proportional (PSS), of all that runs on the server's behalf. That of few workers is read after that
of many, so that what a server keeps for later counts. A program that cannot change its number of workers is
stopped and started with the new one; the table says so.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from waiting import wait_for

from benchmarks.serving import environment, together
from benchmarks.serving.frameworks import (
    ALONE,
    DIRECT,
    FRAMEWORKS,
    MOSEC,
    ORDINARY,
    PACKED,
    PATIENCE_S,
    STOCK,
    Order,
    Program,
    Server,
    WrongAnswerError,
    archive,
    memory,
    posted,
    right_answer,
)
from benchmarks.serving.models import BY_DEFAULT, MODELS
from benchmarks.shared import http_load, report
from benchmarks.shared.others import Others, doubt

# Those that serve an archive; whether it is hermetic.
AS_STOCK = {PACKED: True, ORDINARY: False, STOCK: False, DIRECT: True, ALONE: True}
# Times that the rate at the direct address is to be another one's, with a model.
DIRECT_BARS = {
    ("small", STOCK): 4.5,
    ("small", MOSEC): 1.2,
    ("large", STOCK): 2.4,
    ("batched", MOSEC): 1.0,
}


@dataclass
class Figures:
    """Of one framework with one model: by round, or by number of workers and round."""

    first_s: list[float] = field(default_factory=list)  # from nothing to its first answer
    another_s: list[float] = field(default_factory=list)  # from another model's deployment to its answer
    scaled_s: list[float] = field(default_factory=list)  # from one worker to the most
    restarts: bool = False
    rate: dict[int, list[float]] = field(default_factory=dict)
    first_rate: dict[int, list[float]] = field(default_factory=dict)  # while it warms
    p50_ms: dict[int, list[float]] = field(default_factory=dict)
    p99_ms: dict[int, list[float]] = field(default_factory=dict)
    workers_mb: dict[int, list[float]] = field(default_factory=dict)
    frontends_mb: dict[int, list[float]] = field(default_factory=dict)


@dataclass
class Found:
    """All that was measured.

    Attributes:
        figures: by model and framework.
        failed: why a framework has no figures.
        others: cores that other processes used, for each measurement.
    """

    figures: dict[str, dict[str, Any]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    others: list[float] = field(default_factory=list)


def wait_for_all(server: Server, workers: int) -> None:
    """Until so many workers have answered, and there are no others."""
    wait_for(lambda: server.all_answer(workers), f"{workers} workers' answers", seconds=PATIENCE_S)


def scaled(server: Server, workers: int) -> float:
    """Seconds until so many workers have answered."""
    begun = time.perf_counter()
    server.scale(workers)
    wait_for_all(server, workers)
    return time.perf_counter() - begun


def turn(
    model: str, name: str, folder: Path, options: argparse.Namespace, figures: Figures
) -> Iterator[float]:
    """Start, measure and stop one framework; gives the cores that other processes used under each load."""
    framework = FRAMEWORKS[name]
    figures.restarts = name == ALONE or (isinstance(framework, Program) and not framework.kind.scales)
    most = max(options.workers)
    begun = time.perf_counter()
    with framework(Order(model, most), folder) as server:
        (url,) = server.urls
        expected = right_answer(model, url)
        figures.first_s.append(time.perf_counter() - begun)
        another = server.deploy_another()
        if another is not None:
            figures.another_s.append(another)
        figures.scaled_s.append(scaled(server, most))
        for workers in sorted(options.workers, reverse=True):
            if workers != most:
                scaled(server, workers)
            body = posted(url, MODELS[model].question)
            load = url, body, "application/json", expected, 2 * workers * MODELS[model].batch
            warming = http_load.measure(*load, options.warm)
            # Who replaces its workers to change their number may still have been at it.
            wait_for_all(server, workers)
            disturbed = Others(server.processes())
            met = http_load.measure(*load, options.seconds)
            yield disturbed.cores()
            if met.wrong:
                raise WrongAnswerError(met.wrong)
            there_mb = memory(server)
            for kind, value in (
                (figures.rate, met.rate),
                (figures.first_rate, warming.rate),
                (figures.p50_ms, met.p50_ms),
                (figures.p99_ms, met.p99_ms),
                (figures.workers_mb, there_mb["workers"]),
                (figures.frontends_mb, there_mb["frontends"]),
            ):
                kind.setdefault(workers, []).append(value)


def prepare(folder: Path, options: argparse.Namespace) -> dict[str, str]:
    """Install what is missing, make archives; gives why a framework cannot be installed."""
    failed = {}
    for hermetic in (True, False):
        store = folder / ("hermetic" if hermetic else "ordinary")
        store.mkdir()
        if {name for name in options.frameworks if AS_STOCK.get(name) is hermetic}:
            for model in options.only:
                archive(model, hermetic, store)
    for name in options.frameworks:
        framework = FRAMEWORKS[name]
        if isinstance(framework, Program):
            try:
                environment.python_of(framework.pins)
            except environment.CannotBeInstalledError as error:
                failed[name] = f"cannot be installed: {error}"
    return failed


def measure(folder: Path, options: argparse.Namespace) -> Found:
    """All frameworks with each model, in turns, beginning with another one in each round; drop what fails."""
    found = Found(failed=prepare(folder, options))
    one, kind = (together.turn, together.Figures) if options.together else (turn, Figures)
    for round_number, model in itertools.product(range(options.rounds), options.only):
        by_name = found.figures.setdefault(model, {})
        first = round_number % len(options.frameworks)
        for name in options.frameworks[first:] + options.frameworks[:first]:
            if name in found.failed:
                continue
            try:
                found.others += one(model, name, folder, options, by_name.setdefault(name, kind()))
            except (OSError, RuntimeError, AssertionError) as error:
                found.failed[name] = f"{model}: {type(error).__name__}: {error}"
                print(f"  {name}, {found.failed[name]}", flush=True)
            else:
                print(f"  round {round_number + 1}: {model}, {name}", flush=True)
    for name, by_name in itertools.product(found.failed, found.figures.values()):
        by_name.pop(name, None)
    return found


def bars_of(found: Found, workers: list[int]) -> Iterator[report.Bar]:
    """What is asked of interpool's workers, beside others in the same run."""
    most = max(workers)
    if STOCK in found.failed:  # without its figures there is no bar beside it
        yield report.Bar(f"{STOCK} could be compared", 0.0, 1.0)
    for name, (model, by_name) in itertools.product((PACKED, ORDINARY), found.figures.items()):
        if name not in by_name or STOCK not in by_name:
            continue
        mine, stock = by_name[name], by_name[STOCK]
        for what, one, another, least in (
            (f"{name}'s rate over stock's", mine.rate[most], stock.rate[most], 0.9),
            (f"stock's workers' memory over {name}'s", stock.workers_mb[most], mine.workers_mb[most], 1.0),
            (f"stock's 1 to {most} workers over {name}'s", stock.scaled_s, mine.scaled_s, 5.0),
        ):
            yield report.Bar(f"{model}: {what}", report.ratio(one, another), least)
    for name, ((model, other), least) in itertools.product((DIRECT, ALONE), DIRECT_BARS.items()):
        by_name = found.figures.get(model, {})
        if name in by_name and other in by_name:
            ratio = report.ratio(by_name[name].rate[most], by_name[other].rate[most])
            yield report.Bar(f"{model}: {name}'s rate over {other}'s", ratio, least)


def versions(names: list[str]) -> dict[str, Any]:
    """What was compared."""
    found: dict[str, Any] = {"torch": torch.__version__, "client": http_load.NAME}
    for name in names:
        framework = FRAMEWORKS[name]
        if isinstance(framework, Program):
            with contextlib.suppress(environment.CannotBeInstalledError):
                python = environment.python_of(framework.pins)
                found[name] = environment.versions_in(python)
    return found


def main() -> None:
    cores = os.cpu_count() or 1
    parser = report.parser("serving", __doc__)
    parser.add_argument("--rounds", type=int, default=3, help="rounds, all frameworks in each")
    parser.add_argument("--seconds", type=float, default=4.0, help="of one measurement")
    parser.add_argument(
        "--warm", type=float, default=8.0, help="seconds before each measurement; a pool may grow meanwhile"
    )
    parser.add_argument("--only", nargs="+", choices=MODELS, metavar="MODEL", help=str([*MODELS]))
    names = list(FRAMEWORKS)
    parser.add_argument(
        "--frameworks", nargs="+", choices=names, default=names, metavar="NAME", help="; ".join(names)
    )
    parser.add_argument("--workers", type=int, nargs="+", help="numbers of them; with --together one, or 4")
    parser.add_argument(
        "--together",
        type=int,
        metavar="N",
        help="instead: a model under N names at once, the small one by default; kept as serving-models",
    )
    options = parser.parse_args()
    options.only = options.only or (["small"] if options.together else BY_DEFAULT)
    options.workers = sorted({*(options.workers or ([4] if options.together else [cores, 4 * cores]))})
    if options.together and len(options.workers) > 1:
        parser.error("--together takes one number of workers")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="ip-serving-") as folder:
        found = measure(Path(folder), options)
    for name, why in found.failed.items():
        print(f"  {name} has no figures: {why}")
    each_one = [(model, *one) for model, by_name in found.figures.items() for one in by_name.items()]
    bars = [
        report.Bar(f"{name} answered rightly", float(name not in found.failed), 1.0)
        for name in (PACKED, ORDINARY)
        if name in options.frameworks
    ]
    if options.together:
        measured = {f"{model}: {name}": each.rate for model, name, each in each_one}
        bars += together.bars(found.figures, PACKED, STOCK, options.warm)
    else:
        measured = {
            f"{model}: {name}, {workers} workers": rates
            for model, name, each in each_one
            for workers, rates in each.rate.items()
        }
        bars += bars_of(found, options.workers)
    report.finish(
        "serving-models" if options.together else "serving",
        measured,
        "req/s",
        bars,
        doubt(found.others),
        figures={
            model: {name: asdict(each) for name, each in by_name.items()}
            for model, by_name in found.figures.items()
        },
        failed=found.failed,
        others_cores=found.others,
        versions=versions([name for name in options.frameworks if name not in found.failed]),
        options=vars(options),
    )


if __name__ == "__main__":
    main()
