"""What a request costs besides its model: the pool, stock TorchServe, and a backend that answers at once.

Three TorchServes take turns with the same handlers' code: stock, the pool (from hermetic archives, or with
--ordinary from stock's), and one whose worker is ``rest_at_once.py``, which decodes, runs and logs nothing,
so that what is left is the frontend's. Clients post over kept connections and wait for each answer. Models:
one that answers at once, asked with a few bytes and with a megabyte, and a tower of two gated layers (about
0.1 ms in plain Python), with batches of one and of eight. A wrong answer ends the benchmark.

Rates are medians over the rounds of what the pool's is over the other's in the same round; so are 99th
percentiles. The CPU time of a request is the workers', or the pool host's, less what the handler's own
code takes in a process of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import report
import rest_handlers
import torch
from neighbour import QUIET_MACHINE, Others, percentile
from rest_clients import load

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))

from local_server import TorchServe  # noqa: E402

BIN = Path(sys.executable).parent
STOCK, POOL, AT_ONCE = "stock", "pool", "at once"
SERVERS = (STOCK, POOL, AT_ONCE)
JSON, BYTES = "application/json", "application/octet-stream"
NUMBERS = [0.1] * rest_handlers.WIDTH
REST_CPU_MS = 0.12


class Case(NamedTuple):
    """What is asked of a model; the bars where there are any."""

    name: str
    model: str  # a class of rest_handlers
    workers: int
    batch: int
    clients: int
    body: bytes
    kind: str
    over_stock: float = 0.0
    over_at_once: float = 0.0
    cpu: bool = False

    @property
    def label(self) -> str:
        return f"{self.name}, {self.workers} workers, {self.clients} clients"


TINY, SMALL = (json.dumps(NUMBERS).encode(), JSON), (b"{}", JSON)
CASES = (
    Case("tiny", "Tiny", 2, 1, 8, *TINY, over_stock=1.3, cpu=True),
    Case("tiny", "Tiny", 2, 1, 1, *TINY, over_stock=0.0),
    Case("tiny", "Tiny", 2, 1, 32, *TINY, over_stock=1.3),
    Case("tiny", "Tiny", 8, 1, 8, *TINY, over_stock=1.3),
    Case("tiny", "Tiny", 8, 1, 32, *TINY, over_stock=1.3),
    Case("tiny, batches of 8", "Tiny", 2, 8, 32, *TINY, over_stock=1.3),
    Case("empty", "Empty", 2, 1, 8, *SMALL, over_stock=1.25, over_at_once=0.8, cpu=True),
    Case("1 MB", "Empty", 2, 1, 8, bytes(1 << 20), BYTES, over_stock=1.15),
)


def archive(store: Path, folder: Path, hermetic: bool) -> None:
    """``Tiny.mar`` and ``Empty.mar``, of the same handlers."""
    for model in ("Tiny", "Empty"):
        if hermetic:
            package = folder / f"{model}.ptpkg"
            command = [str(BIN / "interpool"), "pack", f"rest_handlers:{model.lower()}", "-o", str(package)]
            subprocess.run(command, check=True, cwd=HERE, stdout=subprocess.DEVNULL)
            printed = subprocess.run(
                [str(BIN / "interpool"), "handler"], check=True, capture_output=True, text=True
            )
            arguments = ["--serialized-file", str(package), "--handler", printed.stdout.strip()]
        else:
            handler = folder / f"{model.lower()}.py"
            handler.write_text(f"from rest_handlers import {model}\n\n\nclass Handler({model}):\n    pass\n")
            arguments = ["--handler", str(handler), "--extra-files", str(HERE / "rest_handlers.py")]
        command = [str(BIN / "torch-model-archiver"), "--model-name", model, "--version", "1.0", *arguments]
        command += ["--export-path", str(store), "--force"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def home_of_at_once(folder: Path) -> Path:
    """A TorchServe home with our worker in it."""
    import ts

    (folder / "ts").mkdir()
    for entry in Path(ts.__file__).parent.iterdir():
        if entry.name not in ("model_service_worker.py", "__pycache__"):
            (folder / "ts" / entry.name).symlink_to(entry)
    (folder / "ts" / "model_service_worker.py").symlink_to(HERE / "rest_at_once.py")
    return folder


@contextlib.contextmanager
def server(name: str, options: argparse.Namespace) -> Iterator[TorchServe]:
    environment = {"INTERPOOL_INTERPRETERS": options.interpreters}  # an empty variable counts as unset
    environment["INTERPOOL_ORDINARY_ARCHIVES"] = "pool"
    with tempfile.TemporaryDirectory(prefix="ip-home-") as folder:
        if name == AT_ONCE:
            environment["TS_MODEL_SERVER_HOME"] = str(home_of_at_once(Path(folder)))
        with TorchServe(overlay=name == POOL, environment=environment) as running:
            archive(running.store, Path(folder), hermetic=name == POOL and not options.ordinary)
            yield running


def cpu_s(name: str, running: TorchServe) -> float:
    """CPU time of all that stands behind the frontend."""
    processes = running.hosts() if name == POOL else running.shims()  # stock's workers have that script, too
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def expected(name: str, case: Case) -> bytes:
    if name == AT_ONCE or case.model == "Empty":
        return b"ok"
    return json.dumps(ask_plainly(case)(), indent=2).encode()


def ask_plainly(case: Case) -> Callable[[], Any]:
    """The handler's own code, for one request."""
    handler = getattr(rest_handlers, case.model)()
    handler.initialize(None)
    data = [{"body": NUMBERS if case.model == "Tiny" else case.body}]
    return lambda: handler.handle(data, None)[0]


def own_cpu_ms(case: Case) -> float:
    """Of one request, in plain Python: the least of some measurements, as anything else adds to it."""
    work = ask_plainly(case)
    found = []
    for _ in range(7):
        begun = time.thread_time()
        for _ in range(200):
            work()
        found.append((time.thread_time() - begun) * 1000 / 200)
    return min(found)


class Measured:
    """Of one case, by server and round."""

    def __init__(self) -> None:
        self.rates: dict[str, list[float]] = {name: [] for name in SERVERS}
        self.p50: dict[str, list[float]] = {name: [] for name in SERVERS}
        self.p99: dict[str, list[float]] = {name: [] for name in SERVERS}
        self.cpu_ms: dict[str, list[float]] = {name: [] for name in SERVERS}

    def take(self, name: str, running: TorchServe, case: Case, seconds: float) -> None:
        url = f"{running.inference}/predictions/{case.model}"
        before = cpu_s(name, running)
        found = load(url, case.body, case.kind, case.clients, seconds, expected(name, case))
        if found.errors:
            raise RuntimeError(f"{name}, {case.label}: {found.errors[:3]}")
        self.rates[name].append(found.rate)
        self.p50[name].append(percentile(found.seconds, 0.5) * 1000)
        self.p99[name].append(percentile(found.seconds, 0.99) * 1000)
        self.cpu_ms[name].append((cpu_s(name, running) - before) * 1000 / len(found.seconds))

    def over(self, kind: dict[str, list[float]], one: str, other: str) -> float:
        return statistics.median(a / b for a, b in zip(kind[one], kind[other], strict=True))


def measure(
    servers: dict[str, TorchServe], cases: list[Case], options: argparse.Namespace, others: list[float]
) -> dict[Case, Measured]:
    """All cases of one registration; notes how many cores others used meanwhile."""
    first = cases[0]
    for name, running in servers.items():
        how = {"initial_workers": first.workers, "batch_size": first.batch, "max_batch_delay": 1}
        answer = running.register(f"{first.model}.mar", model_name=first.model, **how)
        if answer.status != 200:
            raise RuntimeError(f"{name}: {answer.text}")
    measured = {case: Measured() for case in cases}
    disturbed = Others(list(servers.values()))
    for case in cases:
        for name, running in servers.items():
            Measured().take(name, running, case, options.warm)
        for round_number in range(options.rounds):
            turn = round_number % len(SERVERS)
            for name in SERVERS[turn:] + SERVERS[:turn]:
                measured[case].take(name, servers[name], case, options.seconds)
    others.append(disturbed.cores())
    for running in servers.values():
        running.unregister(first.model)
    return measured


def bars_of(case: Case, found: Measured, own_ms: float) -> Iterator[report.Bar]:
    if case.over_stock:
        ratio = found.over(found.rates, POOL, STOCK)
        yield report.Bar(f"{case.label}: rate over stock's", ratio, case.over_stock)
    if case.over_at_once:
        ratio = found.over(found.rates, POOL, AT_ONCE)
        yield report.Bar(f"{case.label}: rate over answering at once", ratio, case.over_at_once)
    yield report.Bar(f"{case.label}: stock's p99 over the pool's", found.over(found.p99, STOCK, POOL), 1.0)
    if case.cpu:
        rest = max(1e-6, statistics.median(found.cpu_ms[POOL]) - own_ms)
        yield report.Bar(
            f"{case.label}: {REST_CPU_MS} ms over CPU besides the model's", REST_CPU_MS / rest, 1.0
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        prog="scripts/bench rest",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=7, help="rounds, all servers in each")
    parser.add_argument("--seconds", type=float, default=4.0, help="of one measurement")
    parser.add_argument("--warm", type=float, default=3.0, help="seconds before the first one of a case")
    parser.add_argument("--only", default="", help="cases whose label holds this text")
    parser.add_argument("--interpreters", default="", help="an exact number for the pool; none by default")
    parser.add_argument("--ordinary", action="store_true", help="the pool serves stock's archives")
    options = parser.parse_args()
    torch.set_num_threads(1)
    cases = [case for case in CASES if options.only in case.label]
    if not cases:
        parser.error(f"no case holds {options.only!r}: {'; '.join(case.label for case in CASES)}")
    groups: dict[tuple[str, int, int], list[Case]] = {}
    for case in cases:
        groups.setdefault((case.model, case.workers, case.batch), []).append(case)

    found: dict[Case, Measured] = {}
    others: list[float] = []
    with contextlib.ExitStack() as stack:
        servers = {name: stack.enter_context(server(name, options)) for name in SERVERS}
        for group in groups.values():
            found |= measure(servers, group, options, others)

    bars, measured, details = [], {}, {}
    for case, one in found.items():
        own_ms = own_cpu_ms(case)
        print(f"  {case.label} (the model's own CPU {own_ms:.3f} ms)")
        for name in SERVERS:
            cpu, p99 = statistics.median(one.cpu_ms[name]), statistics.median(one.p99[name])
            print(
                f"    {name:<8} {report.median_of(one.rates[name])} req/s, p99 {p99:.1f} ms, CPU {cpu:.3f} ms"
            )
            measured[f"{case.label}: {name}"] = one.rates[name]
        bars += bars_of(case, one, own_ms)
        details[case.label] = {"own_cpu_ms": own_ms, **vars(one)}
    doubt = f"other processes used up to {max(others):.2f} cores" if max(others) > QUIET_MACHINE else ""
    report.finish(
        "rest", measured, "req/s", bars, doubt, cases=details, others_cores=others, options=vars(options)
    )


if __name__ == "__main__":
    main()
