"""Does anything grow, or go wrong, in a pool that is used and changed for a long time?

Three models under checked load: one is scaled up and down, one, with four megabytes of weights, is
unregistered and registered again, one fails on every tenth request. After each such round, with the same
number of workers as after the others, the host is sampled: memory (proportional, and its own), descriptors,
mappings, threads, the latency of the model that is only scaled. A least-squares line through the samples
after the first part of the time says how much each grows in an hour.

Then a model is added that keeps 100 kB of each request: the same check must find it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import archiving
import report
import soak_handlers
import soak_plot
import torch
from rest_clients import percentile
from soak_clients import Client
from soak_slopes import HOUR, Slope, slope_of, verdict

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))

from local_server import TorchServe  # noqa: E402

MB = 1e6
SCALED, CHANGED, FAILING, LEAKING = "scaled", "changed", "failing", "leaking"
MADE_BY = {SCALED: "steady", CHANGED: "weighty", FAILING: "steady", LEAKING: "leaking"}
WORKERS, MORE_WORKERS = 2, 4
PAUSE_S = 1.0  # after a change, before the sample: what was freed is gone
# By how much each may grow in an hour, at most; a latency, by a part of its own median.
LIMITS = {"memory_mb": 24.0, "private_mb": 24.0, "descriptors": 6.0, "mappings": 200.0, "threads": 6.0}
LATENCY_LIMIT = 0.2
# By how much each may rise in the time that was measured, however short: a thread more is no slope.
RISES = {"memory_mb": 16.0, "private_mb": 16.0, "descriptors": 4.0, "mappings": 20.0, "threads": 2.0}
JUDGED = (*LIMITS, "p50_ms")
LEAST_SAMPLES = 8
# TorchServe fails a worker's jobs when its model is unregistered, whose thread may just have answered one.
TORCHSERVES_RACE = "Job.isControlCmd()"
UNREGISTER_TRIES = 5


@dataclass(frozen=True)
class Sample:
    """The host, and all that belongs to it, at one moment."""

    seconds: float
    requests: int
    memory_mb: float
    private_mb: float
    descriptors: int
    mappings: int
    threads: int
    p50_ms: float
    p99_ms: float
    shims_mb: float
    frontend_mb: float


class Soaked:
    """A server with three models and their clients."""

    def __init__(self, server: TorchServe, stack: ExitStack) -> None:
        self.server = server
        self.clients: dict[str, Client] = {}
        self._stack = stack
        self._begun = time.monotonic()
        self.races = 0  # of TorchServe's frontend with itself

    def add(self, name: str) -> None:
        """Pack it, register it, and begin to ask it."""
        factory = MADE_BY[name]
        package = self.server.root / f"{name}.ptpkg"
        archiving.archive(name, self.server.store, archiving.hermetic(f"soak_handlers:{factory}", package))
        self._register(name)
        # The control leaks in the server, and not here as well.
        model = getattr(soak_handlers, "steady" if name == LEAKING else factory)()
        model.initialize(None)
        client = Client(self.server.inference, name, model.one, failing=name == FAILING)
        self.clients[name] = self._stack.enter_context(client)

    def _register(self, name: str) -> None:
        answer = self.server.register(f"{name}.mar", initial_workers=WORKERS, batch_size=1)
        if answer.status != 200:
            raise RuntimeError(f"{name} was not registered: {answer.text}")

    def _unregister(self, name: str) -> None:
        for _ in range(UNREGISTER_TRIES):
            answer = self.server.unregister(name)
            if answer.status != 500 or TORCHSERVES_RACE not in answer.text:
                break
            self.races += 1
        if answer.status not in (200, 404):
            raise RuntimeError(f"{name} was not unregistered in {UNREGISTER_TRIES} tries: {answer.text}")

    def change(self) -> None:
        """Scale one up and down, and register another one anew."""
        with self.clients[SCALED].changing():
            for workers in (MORE_WORKERS, WORKERS):
                answer = self.server.scale(SCALED, workers)
                if answer.status != 200:
                    raise RuntimeError(f"{SCALED} was not scaled to {workers}: {answer.text}")
        with self.clients[CHANGED].changing():
            self._unregister(CHANGED)
            self._register(CHANGED)

    def sample(self) -> Sample:
        (host,) = self.server.hosts()
        memory = host.memory_full_info()
        took = self.clients[SCALED].take_seconds()
        return Sample(
            seconds=time.monotonic() - self._begun,
            requests=sum(client.right for client in self.clients.values()),
            memory_mb=memory.pss / MB,
            private_mb=memory.uss / MB,
            descriptors=host.num_fds(),
            mappings=Path(f"/proc/{host.pid}/maps").read_bytes().count(b"\n"),
            threads=host.num_threads(),
            p50_ms=percentile(took, 0.5) * 1000,
            p99_ms=percentile(took, 0.99) * 1000,
            shims_mb=sum(process.memory_full_info().pss for process in self.server.shims()) / MB,
            frontend_mb=self.server.frontend.memory_full_info().pss / MB,
        )

    def run(self, seconds: float, said: Callable[[Sample], object]) -> list[Sample]:
        """Change it for so long, at least so often that a line can be drawn; a sample after each time."""
        samples: list[Sample] = []
        until = time.monotonic() + seconds
        while time.monotonic() < until or len(samples) < LEAST_SAMPLES:
            self.change()
            time.sleep(PAUSE_S)
            samples.append(self.sample())
            said(samples[-1])
        return samples


def slopes_of(samples: list[Sample]) -> dict[str, Slope]:
    """How much each grows in an hour."""
    when = [sample.seconds for sample in samples]
    return {
        what: slope_of(when, [float(getattr(sample, what)) for sample in samples])
        for what in (*JUDGED, "shims_mb", "frontend_mb")
    }


def limit_of(what: str, samples: list[Sample]) -> float:
    """By how much it may grow in an hour."""
    hours = max(1e-6, (samples[-1].seconds - samples[0].seconds) / HOUR)
    if what in LIMITS:
        return max(LIMITS[what], RISES[what] / hours)
    middle = statistics.median(float(getattr(sample, what)) for sample in samples)
    return LATENCY_LIMIT * middle * max(1.0, 1 / hours)


def judged(samples: list[Sample]) -> tuple[dict[str, dict[str, Any]], list[report.Bar], str]:
    """What is known of each, the bars, and why it may be that a missed one says nothing."""
    found: dict[str, dict[str, Any]] = {}
    bars: list[report.Bar] = []
    for what, slope in slopes_of(samples).items():
        found[what] = asdict(slope)
        if what not in JUDGED:
            continue
        limit = limit_of(what, samples)
        found[what] |= {"limit": limit, "verdict": verdict(slope, limit)}
        upper = max(slope.per_hour + slope.error, 1e-9)
        bars.append(report.Bar(f"{what}: {limit:.3g} an hour over what it may grow", limit / upper, 1.0))
    grown = [what for what in JUDGED if found[what]["verdict"] == "grows"]
    unclear = [what for what in JUDGED if found[what]["verdict"] == "cannot tell"]
    doubt = f"too short to tell: {', '.join(unclear)}" if unclear and not grown else ""
    return found, bars, doubt


def after(samples: list[Sample], part: float) -> list[Sample]:
    """Without those of the first part of the time, but as many as a line needs."""
    begun, end = samples[0].seconds, samples[-1].seconds
    late = [sample for sample in samples if sample.seconds >= begun + part * (end - begun)]
    return late if len(late) >= LEAST_SAMPLES // 2 else samples[-LEAST_SAMPLES // 2 :]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        prog="scripts/bench soak",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--long", action="store_true", help="an hour")
    parser.add_argument(
        "--warm", type=float, default=0.25, help="part of the time whose samples do not count"
    )
    parser.add_argument("--control-minutes", type=float, default=1.0, help="of the model that leaks")
    options = parser.parse_args()
    minutes = 60.0 if options.long else options.minutes
    torch.set_num_threads(1)

    def said(sample: Sample) -> None:
        print(
            f"  {sample.seconds:6.0f} s: {sample.requests} right answers, {sample.memory_mb:.1f} MB, "
            f"{sample.descriptors} descriptors, {sample.mappings} mappings, {sample.threads} threads, "
            f"p50 {sample.p50_ms:.1f} ms",
            flush=True,
        )

    environment = {"INTERPOOL_INTERPRETERS": "2"}
    with TorchServe(environment=environment) as server, ExitStack() as stack:
        soaked = Soaked(server, stack)
        for name in (SCALED, CHANGED, FAILING):
            soaked.add(name)
        samples = soaked.run(60 * minutes, said)
        print("  now with a model that leaks", flush=True)
        soaked.add(LEAKING)
        control = soaked.run(60 * options.control_minutes, said)
    counted = after(samples, options.warm)
    found, bars, doubt = judged(counted)
    leaked = after(control, options.warm)
    leak = slopes_of(leaked)["memory_mb"]
    caught = verdict(leak, limit_of("memory_mb", leaked))
    clients = soaked.clients.values()
    wrong = [text for client in clients for text in client.wrong]
    twice = [text for client in clients for text in client.twice]
    faults = [text for client in clients for text in client.faults]
    for what, one in found.items():
        limit = f", at most {one['limit']:.3g}: {one['verdict']}" if "limit" in one else ""
        print(f"  {what:<12} {one['per_hour']:+10.3f} ± {one['error']:.3f} an hour{limit}")
    print(f"  the leak: {leak.per_hour:+.0f} ± {leak.error:.0f} MB an hour: {caught}")
    for text in [*wrong, *twice, *faults][:10]:
        print(f"  FAULT {text}")
    right = sum(client.right for client in clients)
    certain = [
        report.Bar("right answers, of all answers", right / max(1, right + len(wrong)), 1.0),
        report.Bar("no request was answered twice", float(not twice), 1.0),
        report.Bar("no request failed but as it was to", float(not faults), 1.0),
        report.Bar("the leak is found", float(caught == "grows"), 1.0),
    ]
    if not all(bar.met for bar in certain):
        doubt = ""
    report.RESULTS.mkdir(parents=True, exist_ok=True)
    plot = soak_plot.draw(
        [asdict(sample) for sample in samples], report.RESULTS / "soak.svg", counted[0].seconds
    )
    print(f"plot: {plot}")
    report.finish(
        "soak",
        {"p50": [sample.p50_ms for sample in samples], "p99": [sample.p99_ms for sample in samples]},
        "ms",
        [*certain, *bars],
        doubt,
        slopes=found,
        leak={**asdict(leak), "verdict": caught},
        samples=[asdict(sample) for sample in samples],
        control=[asdict(sample) for sample in control],
        counted_from=counted[0].seconds,
        answers={
            name: {
                "right": client.right,
                "failed": client.failed,
                "errors": client.errors,
                "twice": len(client.twice),
                "closed": client.closed,
            }
            for name, client in soaked.clients.items()
        },
        faults=[*wrong, *faults],
        twice=twice,
        races=soaked.races,
        options=vars(options),
    )


if __name__ == "__main__":
    main()
