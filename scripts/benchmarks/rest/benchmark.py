"""What a request costs besides its model: the pool, stock TorchServe, and backends that answer at once.

Four TorchServes take turns with the same handlers' code. They are stock, the pool (from hermetic archives),
and two whose worker is ``rest/at_once.py``, which decodes and runs nothing. One of these writes no log lines
("at once"). The other writes those that TorchServe's Service writes of a batch ("bound"). Under this frontend
no backend that serves these models as TorchServe does can exceed it. Clients post over kept connections and
wait for each answer. One model answers at once, and is asked with a few bytes and with a megabyte. The other
is a tower of two gated layers (about 0.1 ms in plain Python), with batches of one and of eight. A wrong
answer ends the benchmark.

Rates are medians over the rounds of what the pool's is over the other's in the same round; so are 99th
percentiles. The CPU time of a request is that of the workers, or of the pool host, less the handler's own
code. As many requests of a handler that says what CPU time its thread has taken give that part.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from local_server import TorchServe

from benchmarks.rest import handlers
from benchmarks.shared import archiving, http_load, report
from benchmarks.shared.checkout import BENCHMARKS
from benchmarks.shared.clients import load
from benchmarks.shared.others import Others, doubt
from benchmarks.shared.turns import in_turns

STOCK, POOL, AT_ONCE, BOUND = "stock", "pool", "at once", "bound"
SERVERS = (STOCK, POOL, AT_ONCE, BOUND)
JSON, BYTES = "application/json", "application/octet-stream"
NUMBERS = [0.1] * handlers.WIDTH
P99, LESS_CPU = 0.75, 1.15


class Case(NamedTuple):
    """What is asked of a model, and the bars."""

    name: str
    model: str  # a class of handlers.py
    workers: int
    batch: int
    clients: int
    body: bytes
    kind: str
    over_stock: float
    cpu: bool = False

    @property
    def label(self) -> str:
        return f"{self.name}, {self.workers} workers, {self.clients} clients"


TINY, SMALL = (json.dumps(NUMBERS).encode(), JSON), (b"{}", JSON)
MEGABYTE = (bytes(1 << 20), BYTES)


def cases() -> Iterator[Case]:
    """All that can be asked, and the bars."""
    for workers in (2, 8):
        for clients in (1, 8, 32):
            usual = (workers, clients) == (2, 8)
            yield Case("tiny", "Tiny", workers, 1, clients, *TINY, over_stock=0.9, cpu=usual)
            if clients >= 8:
                yield Case("tiny, batches of 8", "Tiny", workers, 8, clients, *TINY, over_stock=1.1)
    yield Case("empty", "Empty", 2, 1, 8, *SMALL, over_stock=0.9, cpu=True)
    yield Case("1 MB", "Empty", 2, 1, 8, *MEGABYTE, over_stock=0.9)


CASES = tuple(cases())


def archive(store: Path, folder: Path, hermetic: bool) -> None:
    """An archive of each handler."""
    for model in ("Tiny", "Empty", "TimedTiny", "TimedEmpty"):
        if hermetic:
            arguments = archiving.hermetic(f"{handlers.__name__}:{model}", folder / f"{model}.ptpkg")
        else:
            arguments = archiving.ordinary(f"{handlers.__name__}:{model}", folder)
        archiving.archive(model, store, arguments)


def home_of_at_once(folder: Path) -> Path:
    """A TorchServe home with our worker in it."""
    import ts

    (folder / "ts").mkdir()
    for entry in Path(ts.__file__).parent.iterdir():
        if entry.name not in ("model_service_worker.py", "__pycache__"):
            (folder / "ts" / entry.name).symlink_to(entry)
    (folder / "ts" / "model_service_worker.py").symlink_to(BENCHMARKS / "rest" / "at_once.py")
    return folder


@contextlib.contextmanager
def server(name: str) -> Iterator[TorchServe]:
    environment = {"INTERPOOL_INTERPRETERS": ""}  # an empty variable counts as unset
    with tempfile.TemporaryDirectory(prefix="ip-home-") as folder:
        environment["REST_LINES"] = "yes" if name == BOUND else ""
        if name in (AT_ONCE, BOUND):
            environment["TS_MODEL_SERVER_HOME"] = str(home_of_at_once(Path(folder)))
        with TorchServe(overlay=name == POOL, environment=environment) as running:
            archive(running.store, Path(folder), hermetic=name == POOL)
            yield running


def cpu_s(name: str, running: TorchServe) -> float:
    """CPU time of all that stands behind the frontend."""
    processes = running.hosts() if name == POOL else running.shims()  # stock's workers have that script, too
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def expected(name: str, running: TorchServe, case: Case) -> bytes:
    """The answer to a request, which is right but for the frontend's white space."""
    right = b"ok"
    if name not in (AT_ONCE, BOUND) and case.model != "Empty":
        right = json.dumps(plain_answer(case)).encode()
    answer = running.post(case.model, case.body, case.kind)
    if answer.status != 200 or b"".join(answer.body.split()) != b"".join(right.split()):
        raise RuntimeError(f"{name}, {case.label}: {answer.status} {answer.text[:200]}")
    return answer.body


def plain_answer(case: Case) -> Any:
    """What the handler's own code answers a request."""
    handler = getattr(handlers, case.model)()
    handler.initialize(None)
    data = [{"body": NUMBERS if case.model == "Tiny" else case.body}]
    return handler.handle(data, None)[0]


class Measured:
    """Of one case, by server and round."""

    def __init__(self) -> None:
        self.rates: dict[str, list[float]] = {name: [] for name in SERVERS}
        self.p50: dict[str, list[float]] = {name: [] for name in SERVERS}
        self.p99: dict[str, list[float]] = {name: [] for name in SERVERS}
        self.cpu_ms: dict[str, list[float]] = {name: [] for name in SERVERS}
        self.own_cpu_ms: dict[str, list[float]] = {STOCK: [], POOL: []}  # of it, the handler's own code

    def take(self, name: str, running: TorchServe, case: Case, seconds: float) -> None:
        url = f"{running.inference}/predictions/{case.model}"
        answer = expected(name, running, case)
        before = cpu_s(name, running)
        met = http_load.measure(url, case.body, case.kind, answer, case.clients, seconds)
        if met.wrong:
            raise RuntimeError(f"{name}, {case.label}: {met.wrong}")
        self.rates[name].append(met.rate)
        self.p50[name].append(met.p50_ms)
        self.p99[name].append(met.p99_ms)
        self.cpu_ms[name].append((cpu_s(name, running) - before) * 1000 / met.requests)

    def take_own(self, name: str, running: TorchServe, case: Case, seconds: float) -> None:
        url = f"{running.inference}/predictions/Timed{case.model}"
        found = load(url, case.body, case.kind, case.clients, seconds, None)
        if found.errors:
            raise RuntimeError(f"{name}, {case.label}, own CPU time: {found.errors[:3]}")
        self.own_cpu_ms[name].append(statistics.mean(json.loads(answer)[0] for answer in found.answers))

    def besides_ms(self, name: str) -> float:
        """CPU time of a request besides the model's own."""
        return max(1e-6, statistics.median(self.cpu_ms[name]) - statistics.median(self.own_cpu_ms[name]))


def measure(
    servers: dict[str, TorchServe], cases: list[Case], options: argparse.Namespace, others: list[float]
) -> dict[Case, Measured]:
    """All cases of one registration; notes how many cores others used meanwhile."""
    first = cases[0]
    timed = any(case.cpu for case in cases)
    for name, running in servers.items():
        how = {"initial_workers": first.workers, "batch_size": first.batch, "max_batch_delay": 1}
        for model in [first.model] + [f"Timed{first.model}"] * (timed and name in (STOCK, POOL)):
            running.checked(running.register(f"{model}.mar", model_name=model, **how))
    measured = {case: Measured() for case in cases}
    disturbed = Others(each for one in servers.values() for each in one.processes())
    for case in cases:
        for name, running in servers.items():
            Measured().take(name, running, case, options.warm)
        for name in in_turns(SERVERS, options.rounds):
            measured[case].take(name, servers[name], case, options.seconds)
            if case.cpu and name in (STOCK, POOL):
                measured[case].take_own(name, servers[name], case, options.seconds / 4)
    others.append(disturbed.cores())
    for name, running in servers.items():
        for model in [first.model] + [f"Timed{first.model}"] * (timed and name in (STOCK, POOL)):
            running.unregister(model)
    return measured


def bars_of(case: Case, found: Measured) -> Iterator[report.Bar]:
    ratio = report.ratio(found.rates[POOL], found.rates[STOCK])
    yield report.Bar(f"{case.label}: rate over stock's", ratio, case.over_stock)
    p99 = report.ratio(found.p99[STOCK], found.p99[POOL])
    yield report.Bar(f"{case.label}: stock's p99 over the pool's", p99, P99)
    if case.cpu:
        ratio = found.besides_ms(STOCK) / found.besides_ms(POOL)
        yield report.Bar(f"{case.label}: stock's CPU besides the model's over the pool's", ratio, LESS_CPU)


def main() -> None:
    parser = report.parser("rest", __doc__)
    parser.add_argument("--rounds", type=int, default=7, help="rounds, all servers in each")
    parser.add_argument("--seconds", type=float, default=4.0, help="of one measurement")
    parser.add_argument("--warm", type=float, default=3.0, help="seconds before the first one of a case")
    parser.add_argument("--only", default="", help="cases whose label holds this text")
    options = parser.parse_args()
    torch.set_num_threads(1)
    cases = [case for case in CASES if options.only in case.label]
    if not cases:
        parser.error(f"there is no such case: {'; '.join(case.label for case in CASES)}")
    groups: dict[tuple[str, int, int], list[Case]] = {}
    for case in cases:
        groups.setdefault((case.model, case.workers, case.batch), []).append(case)

    found: dict[Case, Measured] = {}
    others: list[float] = []
    with contextlib.ExitStack() as stack:
        servers = {name: stack.enter_context(server(name)) for name in SERVERS}
        for group in groups.values():
            found |= measure(servers, group, options, others)

    bars, measured, details = [], {}, {}
    for case, one in found.items():
        measured |= {f"{case.label}: {name}": one.rates[name] for name in SERVERS}
        bars += bars_of(case, one)
        details[case.label] = vars(one)
    report.finish(
        "rest",
        measured,
        "req/s",
        bars,
        doubt(others),
        cases=details,
        others_cores=others,
        options=vars(options),
        client=http_load.NAME,
    )


if __name__ == "__main__":
    main()
