"""How long until the first model answers, and four more workers: the pool against stock TorchServe.

For the first model, a server is started for each figure. It is stock TorchServe, or the pool. The
pool's host has two interpreters or 64, and was started with the server or by the model's worker.
Then 200 requests are sent, and 200 more, and the host is killed, or stock's one worker
(startup/first.py).

For the workers, both servers run the same model, side by side. Each round scales each of them
from no worker to four with ``PUT /models/m?min_worker=4&synchronous=true``. Then it sends
requests until every new worker has given a first, correct answer. TorchServe's own log says
which worker gave which answer.
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import time
from pathlib import Path

import torch
from local_server import TorchServe

from benchmarks.shared import archiving, report
from benchmarks.shared.asking import Asker
from benchmarks.shared.memory import MB, pss_mb
from benchmarks.shared.tiny import WIDTH, TinyMLP
from benchmarks.shared.turns import in_turns
from benchmarks.startup import first

WORKERS = 4
STEADY = 5  # rounds of requests, for a median of answers


def asker_of(running: TorchServe) -> Asker:
    with torch.inference_mode():
        return Asker(running, "tiny", TinyMLP()(torch.ones(1, WIDTH))[0].tolist())


def scale_up(running: TorchServe) -> tuple[float, float, float]:
    """Four new workers.

    Returns:
        Seconds until PUT returns, and until all of them have answered. Also how many times longer than
        the median of all answers the slowest of the workers' first answers took.
    """
    running.checked(running.scale("tiny", 0))
    asker = asker_of(running)
    start = time.perf_counter()
    running.checked(
        running.request("PUT", f"{running.management}/models/tiny", min_worker=WORKERS, synchronous=True)
    )
    ready = time.perf_counter()
    answered = asker.until(WORKERS)
    for _ in range(STEADY):
        asker.ask(2 * WORKERS)
    return ready - start, answered - start, asker.first_over_median()


def ask_once(running: TorchServe) -> None:
    asker_of(running).ask(1)


def scaled_up(archives: Path, rounds: int) -> tuple[dict[str, list[float]], list[float], int, list[float]]:
    """Seconds until four more workers are ready and answer; the pool's first answers, hosts, shims' MiB."""
    measured: dict[str, list[float]] = {}
    first_answers: dict[str, list[float]] = {"pool": [], "stock": []}
    with contextlib.ExitStack() as stack:
        servers = {name: stack.enter_context(first.just_started(name, archives)) for name in first_answers}
        for running in servers.values():
            first.first_answer(running, ask_once)
            asker_of(running).ask(8)  # warm
        for name in in_turns(list(servers), rounds):
            ready, answered, slowest = scale_up(servers[name])
            first_answers[name].append(slowest)
            measured.setdefault(f"{name}: ready", []).append(ready)
            measured.setdefault(f"{name}: answered", []).append(answered)
        shims = [pss_mb([shim]) * MB / 2**20 for shim in servers["pool"].shims()]
        return measured, first_answers["pool"], len(servers["pool"].hosts()), shims


def main() -> None:
    parser = report.parser("startup", __doc__)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        archiving.archive_tiny(Path(folder), Path(folder))
        measured = first.measure(Path(folder), ask_once, options.rounds)
        more, first_answers, hosts, shims = scaled_up(Path(folder), options.rounds)
    measured |= more
    print(f"  shims of {', '.join(f'{each:.1f}' for each in shims)} MiB (PSS)")

    def middle(over: str, under: str) -> float:
        return report.ratio(measured[over], measured[under])

    absent, stock_absent = (
        max(1e-3, statistics.median(measured[f"{name}: after a kill"])) for name in ("pool", "stock")
    )
    bars = {
        "0.5 x stock over the host by serve": (0.5 * middle(first.STOCK, first.BY_SERVE), 1.0),
        "1.2 x stock over the host by its worker": (1.2 * middle(first.STOCK, first.BY_WORKER), 1.0),
        "two interpreters over 64": (middle(first.BY_WORKER, first.OF_MANY), 0.8),
        "3 x the p99 later over that of the first 200": (
            3 * middle("pool: p99 later", "pool: p99 at first"),
            1.0,
        ),
        "2 s over a killed host's absence, less the back-off": (2.0 / absent, 1.0),
        "a killed stock worker's absence over a killed host's": (stock_absent / absent, 1.0),
        "stock over pool, each worker's first answer": (middle("stock: answered", "pool: answered"), 10.0),
        "3 x an answer's median over the slowest worker's first": (3 / statistics.median(first_answers), 1.0),
        "stock over pool, PUT alone": (middle("stock: ready", "pool: ready"), 10.0),
        "one host": (1.0 / hosts if hosts else 0.0, 1.0),
        "1 MiB over the largest shim": (1 / max(shims), 1.0),
    }
    report.finish(
        "startup",
        measured,
        "s",
        [report.Bar(name, ratio, least) for name, (ratio, least) in bars.items()],
        shim_pss_mib=shims,
        first_answers_over_median=first_answers,
    )


if __name__ == "__main__":
    main()
