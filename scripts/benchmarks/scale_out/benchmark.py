"""Models on Ray Serve: a process for each copy, as its documentation has it, against a pool for all of them.

Both have Ray's settings for throughput. Each turn starts a Ray of its own. Sixteen clients ask eight copies
of the small model of the serving benchmark: through Ray's Python proxy, by a handle, and through Ray's
HAProxy ingress. Then ten models with four copies each are weighed. A copy in a pool is a
worker. Memory is proportional (PSS), of the replicas alone; Ray's own processes are counted apart. Every
answer is checked.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import psutil
from waiting import wait_for

from benchmarks.serving import frameworks
from benchmarks.serving.models import REQUEST
from benchmarks.shared import checkout, http_load, report
from benchmarks.shared.memory import pss_mb
from benchmarks.shared.others import Others, doubt
from benchmarks.shared.turns import in_turns

KINDS = PROCESSES, POOL = "processes", "pool"
PROXIES = PYTHON, HAPROXY = "Python proxy", "HAProxy"
PATIENCE_S = 1200.0
JSON = "application/json"


class CopiesOnRay(frameworks.OnTold):
    """A Ray with so many models and copies of each, behind one of its proxies."""

    def __init__(self, kind: str, models: int, copies: int, archive: Path, proxy: str = PYTHON) -> None:
        super().__init__(
            checkout.program("scale_out.program"),
            {
                "SCALE_KIND": kind,
                "SCALE_MODELS": str(models),
                "SCALE_COPIES": str(copies),
                "SCALE_ARCHIVE": str(archive),
                "INTERPOOL_ORDINARY_ARCHIVES": "pool",
                "RAY_AUTH_MODE": "disabled",
                "RAY_SERVE_ENABLE_HA_PROXY": str(int(proxy == HAPROXY)),
                "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
                "RAY_USAGE_STATS_ENABLED": "0",
                "RAY_raylet_start_wait_time_s": "300",
            },
            "/predictions/small-0",
            frameworks.Order("small", copies, copies),
        )

    def _wait_for_an_answer(self, url: str) -> None:
        self._wait_for(lambda: "\nready\n" in self._log.read_text(errors="replace"), "all replicas")
        super()._wait_for_an_answer(url)

    def _wait_for(self, condition: Callable[[], bool], what: str) -> None:
        def holds() -> bool:
            assert self._process is not None
            if self._process.poll() is not None:
                raise RuntimeError(f"it ended with {self._process.returncode}: {self.said()}")
            return condition()

        wait_for(holds, lambda: f"{what}: {self.said()}", seconds=PATIENCE_S, pause=0.2)

    def by_handle(self, seconds: float, clients: int) -> float:
        """Answers a second to clients in a Python program of that Ray."""
        count = len(self._rates())
        self._tell(f"{seconds} {clients}")
        self._wait_for(lambda: len(self._rates()) > count, "a rate")
        return self._rates()[-1]

    def _rates(self) -> list[float]:
        lines = self._log.read_text(errors="replace").splitlines()
        return [float(line.split()[1]) for line in lines if line.startswith("rate ")]

    def memory(self) -> tuple[float, float]:
        """Of the replicas, and of all else that is Ray's own, in MB."""
        replicas = rays = 0.0
        for process in self.processes():
            size = pss_mb([process])
            with contextlib.suppress(psutil.NoSuchProcess):
                family = [process, *process.parents()]
                if any(each.name().startswith("ray::ServeRepl") for each in family):
                    replicas += size
                elif self._process and process.pid != self._process.pid:
                    rays += size
        return replicas, rays


def main() -> None:
    parser = report.parser("scale_out", __doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--copies", type=int, default=8, help="of the model that is asked")
    parser.add_argument("--models", type=int, default=10, help="that are weighed")
    parser.add_argument("--copies-each", type=int, default=4, help="of each of them")
    options = parser.parse_args()
    if importlib.util.find_spec("ray") is None:
        sys.exit("Ray is missing: pip install 'interpool[ray]'")
    clients = 2 * options.copies
    one, many = f"{options.copies} copies", f"{options.models} models with {options.copies_each}"
    body = json.dumps(REQUEST).encode()
    measured: dict[str, list[float]] = {}
    others: list[float] = []

    def note(kind: str, what: str, value: float) -> None:
        measured.setdefault(f"{kind}, {what}", []).append(value)

    def note_memory(kind: str, which: str, running: CopiesOnRay) -> None:
        for whose, size in zip(("replicas", "Ray's own"), running.memory(), strict=True):
            note(kind, f"{which}: {whose}, MB", size)

    with tempfile.TemporaryDirectory() as folder:
        archive = frameworks.archive("small", hermetic=True, store=Path(folder))
        for kind in in_turns(KINDS, options.rounds):
            for proxy in PROXIES:
                with CopiesOnRay(kind, 1, options.copies, archive, proxy).running() as running:
                    (url,) = running.urls
                    expected = frameworks.right_answer("small", url)
                    running.by_handle(1, clients)  # warms
                    watched = Others(running.processes())
                    met = http_load.measure(url, body, JSON, expected, clients, options.seconds)
                    if met.wrong:
                        raise RuntimeError(met.wrong)
                    note(kind, f"{one}: by {proxy}, answers/s", met.rate)
                    if proxy == PYTHON:  # the rest does not depend on it
                        rate = running.by_handle(options.seconds, clients)
                        note(kind, f"{one}: by handle, answers/s", rate)
                        note_memory(kind, one, running)
                    others.append(watched.cores())
            with CopiesOnRay(kind, options.models, options.copies_each, archive).running() as running:
                note_memory(kind, many, running)

    def bar(what: str, least: float, of_processes: bool) -> report.Bar:
        over, under = (PROCESSES, POOL) if of_processes else (POOL, PROCESSES)
        ratio = report.ratio(measured[f"{over}, {what}"], measured[f"{under}, {what}"])
        return report.Bar(f"{what.partition(', ')[0]}, {over} over {under}", ratio, least)

    report.finish(
        "scale_out",
        measured,
        "",
        [
            bar(f"{one}: replicas, MB", 1 / 0.35, of_processes=True),
            bar(f"{many}: replicas, MB", 1 / 0.15, of_processes=True),
            bar(f"{one}: by {PYTHON}, answers/s", 1.0, of_processes=False),
            bar(f"{one}: by {HAPROXY}, answers/s", 0.85, of_processes=False),
            bar(f"{one}: by handle, answers/s", 0.55, of_processes=False),
        ],
        doubt(others),
        others_cores=others,
        options=vars(options),
        clients=http_load.NAME,
        cpus=os.cpu_count(),
    )


if __name__ == "__main__":
    main()
