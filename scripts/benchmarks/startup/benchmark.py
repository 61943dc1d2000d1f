"""How long until the first model answers, and four more workers: the pool against stock TorchServe.

For the first model, a server is started for each figure: stock TorchServe; the pool with a
host that was started with the server, or by the model's worker, of two interpreters and of
64. Then 200 requests are sent, and 200 more, and the host is killed, or stock's one worker
(startup/first.py).

For the workers, both servers run the same model, side by side; each round scales each of them
from no worker to four with ``PUT /models/m?min_worker=4&synchronous=true`` and
then sends requests until every new worker has given a first, correct answer.
TorchServe's own log says which worker gave which answer.
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import time
from pathlib import Path

import torch
from local_server import TorchServe

from benchmarks.shared import report, tiny_archives
from benchmarks.shared.asking import Asker
from benchmarks.shared.tiny import WIDTH, TinyMLP
from benchmarks.startup import first

WORKERS = 4
STEADY = 5  # rounds of requests, for a median of answers


def asker_of(running: TorchServe) -> Asker:
    with torch.inference_mode():
        return Asker(running, "tiny", TinyMLP()(torch.ones(1, WIDTH))[0].tolist())


def scale_up(running: TorchServe) -> tuple[float, float, float]:
    """Four new workers.

    Returns:
        Seconds until PUT returns, and until all of them have answered; how many times longer than the
        median of all answers the slowest of the workers' first answers took.
    """
    if running.scale("tiny", 0).status != 200:
        raise RuntimeError("the workers were not stopped")
    asker = asker_of(running)
    start = time.perf_counter()
    answer = running.request("PUT", f"{running.management}/models/tiny", min_worker=WORKERS, synchronous=True)
    ready = time.perf_counter()
    if answer.status != 200:
        raise RuntimeError(answer.text)
    answered = asker.until(WORKERS)
    for _ in range(STEADY):
        asker.ask(2 * WORKERS)
    return ready - start, answered - start, asker.first_over_median()


def shims(running: TorchServe) -> list[float]:
    """Proportional memory of each shim, in MiB."""
    return [process.memory_full_info().pss / 2**20 for process in running.shims()]


def ask_once(running: TorchServe) -> None:
    asker_of(running).ask(1)


def middle(measured: dict[str, list[float]], over: str, under: str) -> float:
    """The median over the rounds of one figure over another."""
    return report.ratio(measured[over], measured[under])


FIRST, BY_SERVE, BY_WORKER, MANY = (
    "stock: first",
    "pool: first, host by serve",
    "pool: first, host by its worker",
    f"pool: first of {first.MANY}, by its worker",
)


def first_bars(measured: dict[str, list[float]]) -> list[report.Bar]:
    """What is asked of the first model."""
    kill = max(1e-3, statistics.median(measured["pool: after a kill"]))
    return [
        report.Bar("0.5 x stock over the host by serve", 0.5 * middle(measured, FIRST, BY_SERVE), 1.0),
        report.Bar("1.2 x stock over the host by its worker", 1.2 * middle(measured, FIRST, BY_WORKER), 1.0),
        report.Bar("two interpreters over 64", middle(measured, BY_WORKER, MANY), 0.8),
        report.Bar(
            "3 x the p99 later over that of the first 200",
            3 * middle(measured, "pool: p99 later", "pool: p99 at first"),
            1.0,
        ),
        report.Bar("2 s over a killed host's absence, less the back-off", 2.0 / kill, 1.0),
        report.Bar(
            "a killed stock worker's absence over a killed host's",
            max(1e-3, statistics.median(measured["stock: after a kill"])) / kill,
            1.0,
        ),
    ]


def scaled_up(
    archives: Path, rounds: int
) -> tuple[dict[str, list[float]], dict[str, list[float]], list[int], list[float]]:
    """Seconds until four more workers are ready and answer; their first answers; hosts; shims' memory."""
    measured: dict[str, list[float]] = {
        f"{name}: {what}": [] for name in ("pool", "stock") for what in ("ready", "answered")
    }
    first_answers: dict[str, list[float]] = {"pool": [], "stock": []}
    with contextlib.ExitStack() as stack:
        servers = {
            name: stack.enter_context(first.just_started(name, archives)) for name in ("pool", "stock")
        }
        for running in servers.values():
            first.first_answer(running, ask_once)
            asker_of(running).ask(8)  # warm
        for round_number in range(rounds):
            for name in ("pool", "stock")[:: 1 if round_number % 2 else -1]:
                ready, answered, slowest = scale_up(servers[name])
                first_answers[name].append(slowest)
                measured[f"{name}: ready"].append(ready)
                measured[f"{name}: answered"].append(answered)
        pool = servers["pool"]
        return measured, first_answers, [process.pid for process in pool.hosts()], shims(pool)


def main() -> None:
    parser = report.parser("startup", __doc__)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tiny_archives.archive(Path(folder), Path(folder))
        measured = first.measure(Path(folder), ask_once, options.rounds)
        bars = first_bars(measured)
        more, first_answers, hosts, memory = scaled_up(Path(folder), options.rounds)
    measured |= more
    print(f"  one host {hosts}, shims of {', '.join(f'{m:.1f}' for m in memory)} MiB (PSS)")
    bars += [
        report.Bar(
            "stock over pool, each worker's first answer",
            middle(measured, "stock: answered", "pool: answered"),
            8.0,
        ),
        report.Bar(
            "3 x an answer's median over the slowest worker's first",
            3 / statistics.median(first_answers["pool"]),
            1.0,
        ),
        report.Bar("stock over pool, PUT alone", middle(measured, "stock: ready", "pool: ready"), 10.0),
        report.Bar("one host", 1.0 / max(1, len(hosts)) if hosts else 0.0, 1.0),
        report.Bar("1 MiB over the largest shim", 1 / max(memory), 1.0),
    ]
    extra = {"hosts": hosts, "shim_pss_mib": memory, "first_answers_over_median": first_answers}
    report.finish("startup", measured, "s", bars, **extra)


if __name__ == "__main__":
    main()
