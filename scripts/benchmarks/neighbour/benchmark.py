"""What a quiet model feels of a greedy neighbour: the pool against stock TorchServe.

One client asks the quiet model once a second. Beside it, eight clients ask the greedy
model, which has eight workers, so that these never rest. Each call computes on one core.
Two servers take turns: stock TorchServe, and the pool without any setting but, for the
interpreters, as many as there are cores. Then the same pool with `share` for the greedy
model, which is registered a second time for that. Each turn measures the quiet model
alone and beside the greedy one.

Without a setting, the median and the 99th percentile must be no worse than stock's; with
a share, no worse than 1.5 times alone. The greedy model's answers are counted as well: what
the quiet one gets must not be had by leaving cores unused.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from local_server import TorchServe

from benchmarks.shared import archiving, report
from benchmarks.shared.clients import percentile
from benchmarks.shared.others import Others, doubt
from benchmarks.shared.turns import in_turns

GREEDY_WORKERS = 8
ALONE, BESIDE = "alone", "beside a greedy one"


def archive(store: Path, work: Path, hermetic: bool) -> None:
    """``quiet.mar``, ``greedy.mar`` and, for the pool, ``shared.mar``: one handler's code."""
    if hermetic:
        arguments = archiving.hermetic("benchmarks.neighbour.handler:Busy", work / "busy.ptpkg")
    else:
        arguments = archiving.ordinary("benchmarks.neighbour.handler:Busy", work)
    config = work / "share.yaml"
    config.write_text("interpool: {share: 1}\n")
    for name in ("quiet", "greedy", "shared"):
        configured = ["--config-file", str(config)] if name == "shared" and hermetic else []
        archiving.archive(name, store, [*arguments, *configured])


@contextlib.contextmanager
def server(name: str, folder: Path) -> Iterator[TorchServe]:
    environment = {"INTERPOOL_INTERPRETERS": ""}  # an empty variable counts as unset
    with TorchServe(overlay=name == "pool", environment=environment) as running:
        archive(running.store, folder, hermetic=name == "pool")
        for model, workers in (("quiet", 1), ("greedy", GREEDY_WORKERS), ("shared", GREEDY_WORKERS)):
            if model == "shared" and name != "pool":
                continue
            registered = running.register(f"{model}.mar", initial_workers=workers, batch_size=1, timeout=300)
            running.checked(registered)
        yield running


@contextlib.contextmanager
def greedy_clients(running: TorchServe, model: str, seconds: float) -> Iterator[list[float]]:
    """Clients that ask one model again and again; gives when each answer came.

    Raises, at the end, what has ended one of them before: the load was not what it is said to be.
    """
    over = threading.Event()
    answers: list[float] = []

    def ask(_client: int) -> None:
        while not over.is_set():
            running.checked(running.predict(model, {"seconds": seconds}, timeout=120))
            answers.append(time.perf_counter())

    with ThreadPoolExecutor(GREEDY_WORKERS) as threads:
        asked = threads.map(ask, range(GREEDY_WORKERS))
        try:
            yield answers
        finally:
            over.set()
    list(asked)


def ask_quietly(running: TorchServe, seconds: float, count: int) -> list[float]:
    """Seconds that each of so many requests took, one a second."""
    took = []
    begun = time.perf_counter()
    for number in range(count):
        time.sleep(max(0.0, begun + number - time.perf_counter()))
        start = time.perf_counter()
        answer = running.checked(running.predict("quiet", {"seconds": seconds}))
        took.append(time.perf_counter() - start)
        if float(answer.text) != 64.0:
            raise RuntimeError(f"a wrong answer: {answer.text}")
    return took


def main() -> None:
    parser = report.parser("neighbour", __doc__)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--requests", type=int, default=30, help="of the quiet model, in each turn")
    parser.add_argument("--warm", type=int, default=10, help="requests before those that count, in each turn")
    parser.add_argument("--greedy", type=float, default=0.2, help="CPU seconds of a greedy call")
    parser.add_argument("--quiet", type=float, default=0.02, help="CPU seconds of a quiet call")
    options = parser.parse_args()
    turns = [("stock", "greedy"), ("pool", "greedy"), ("pool", "shared")]
    measured: dict[str, list[float]] = {}
    rates: dict[str, list[float]] = {}
    others: list[float] = []
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        servers = {name: stack.enter_context(server(name, Path(folder))) for name in ("stock", "pool")}
        for running in servers.values():
            ask_quietly(running, options.quiet, 3)
        for name, neighbour in in_turns(turns, options.rounds):
            running = servers[name]
            label = name if neighbour == "greedy" else f"{name}, share 1"
            alone = ask_quietly(running, options.quiet, options.requests)
            measured.setdefault(f"{label}: {ALONE}", []).extend(alone)
            disturbed = Others(each for one in servers.values() for each in one.processes())
            with greedy_clients(running, neighbour, options.greedy) as answers:
                ask_quietly(running, options.quiet, options.warm)
                start = time.perf_counter()
                beside = ask_quietly(running, options.quiet, options.requests)
                end = time.perf_counter()
            measured.setdefault(f"{label}: {BESIDE}", []).extend(beside)
            others.append(disturbed.cores())
            count = sum(start <= when <= end for when in answers)
            rates.setdefault(label, []).append(count / (end - start))

    p50 = {name: percentile(values, 0.5) for name, values in measured.items()}
    p99 = {name: percentile(values, 0.99) for name, values in measured.items()}
    shared = "pool, share 1"
    report.finish(
        "neighbour",
        measured,
        "s",
        [
            report.Bar("stock's p50 over the pool's", p50[f"stock: {BESIDE}"] / p50[f"pool: {BESIDE}"], 1.0),
            report.Bar("stock's p99 over the pool's", p99[f"stock: {BESIDE}"] / p99[f"pool: {BESIDE}"], 1.0),
            report.Bar(
                "1.5 alone over beside, share 1",
                1.5 * p50[f"{shared}: {ALONE}"] / p50[f"{shared}: {BESIDE}"],
                1.0,
            ),
            report.Bar(
                "the greedy one's rate, pool over stock",
                report.ratio(rates["pool"], rates["stock"]),
                0.95,
            ),
        ],
        doubt(others),
        others_cores=others,
        p50=p50,
        p99=p99,
        greedy_answers_per_s=rates,
        options=vars(options),
    )


if __name__ == "__main__":
    main()
