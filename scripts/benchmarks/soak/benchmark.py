"""Does anything grow, or go wrong, in a pool that is used and changed for a long time?

Four models are under checked load, each by a client at TorchServe's address and one at the direct address.
The first is scaled up and down. The second, with four megabytes of weights, is unregistered and registered
again. The third gets bad input in every tenth request. Of the fourth, a worker is killed while it has a
request. After each such round, with the same number of workers as after the others, the host is sampled.
Samples are of memory (proportional, and its own), descriptors, mappings, threads, and the latency of the
first model. A least-squares line through the samples after the first part of the time says how much each
grows in an hour.

Then a model is added that keeps 100 kB of each request: the same check must find it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
import torch
from local_server import Answer, TorchServe, free_ports
from waiting import wait_for

from benchmarks.shared import archiving, report
from benchmarks.shared.clients import percentile
from benchmarks.shared.memory import MB, pss_mb
from benchmarks.soak import handlers
from benchmarks.soak.clients import Client
from benchmarks.soak.slopes import HOUR, Slope, slope_of, verdict

SCALED, CHANGED, FAILING, KILLED, LEAKING = "scaled", "changed", "failing", "killed", "leaking"
MADE_BY = {SCALED: "Steady", CHANGED: "Weighty", FAILING: "Steady", KILLED: "Steady", LEAKING: "Leaking"}
WORKERS, MORE_WORKERS = 2, 4
PAUSE_S = 1.0  # after a change, before the sample: what was freed is gone
WARM = 0.25  # part of the time whose samples do not count
# By how much each may grow in an hour, at most; a latency, by a part of its own median.
LIMITS = {"memory_mb": 24.0, "private_mb": 24.0, "descriptors": 6.0, "mappings": 200.0, "threads": 6.0}
LATENCY_LIMIT = 0.2
# By how much each may rise in the time that was measured, however short: a thread more is no slope.
RISES = {"memory_mb": 16.0, "private_mb": 16.0, "descriptors": 4.0, "mappings": 20.0, "threads": 2.0}
JUDGED = (*LIMITS, "p50_ms")
LEAST_SAMPLES = 8
# TorchServe fails a worker's jobs when its model is unregistered, whose thread may just have answered one.
# And it changes its tables of models while another thread of its own reads them.
TORCHSERVES_RACES = ("Job.isControlCmd()", "ConcurrentModificationException")
TRIES = 5
FORGOTTEN_S = 10.0  # a younger worker may be one that starts or ends


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
    others: int = 0  # workers of no registered model, which TorchServe has forgotten


class Ended(Exception):
    """The soak cannot go on: the server does not do what it is asked, or its host is another one."""


class Soaked:
    """A server with models and their clients."""

    def __init__(self, server: TorchServe, direct: str, stack: ExitStack) -> None:
        self.server = server
        self._direct = direct
        self.clients: dict[str, Client] = {}  # at TorchServe's address, by model
        self.direct: dict[str, Client] = {}  # at the direct one
        self._stack = stack
        self._begun = time.monotonic()
        self._host: psutil.Process | None = None  # since the first sample
        self.kills = 0
        self.races = 0  # of TorchServe's frontend with itself
        self.forgotten = 0  # workers that TorchServe went on with after it had unregistered their model
        self.ended = ""  # why it could not go on

    def add(self, name: str) -> None:
        """Pack it, register it, and begin to ask it."""
        factory = MADE_BY[name]
        package = self.server.root / f"{name}.ptpkg"
        archiving.archive(
            name, self.server.store, archiving.hermetic(f"{handlers.__name__}:{factory}", package)
        )
        self._register(name)
        # The control leaks in the server, and not here as well.
        model = getattr(handlers, "Steady" if name == LEAKING else factory)()
        model.initialize(None)
        for clients, address in ((self.clients, self.server.inference), (self.direct, self._direct)):
            client = Client(address, name, model.one, failing=name == FAILING)
            clients[name] = self._stack.enter_context(client)

    @property
    def all_clients(self) -> list[Client]:
        return [*self.clients.values(), *self.direct.values()]

    @contextmanager
    def _changing(self, name: str) -> Iterator[None]:
        """A model is being changed: see Client."""
        with self.clients[name].changing(), self.direct[name].changing():
            yield

    def _register(self, name: str) -> None:
        self._tell(
            f"{name} was not registered",
            lambda: self.server.register(f"{name}.mar", initial_workers=WORKERS, batch_size=1),
        )

    def _unregister(self, name: str) -> None:
        # 404: TorchServe forgets a model before it stops its workers, which it may fail to.
        self._tell(f"{name} was not unregistered", lambda: self.server.unregister(name), gone=True)

    def _scale(self, name: str, workers: int) -> None:
        self._tell(f"{name} was not scaled to {workers}", lambda: self.server.scale(name, workers))

    def _tell(self, otherwise: str, ask: Callable[[], Answer], gone: bool = False) -> None:
        """Ask, and a few times more if TorchServe's frontend has raced with itself; raises Ended."""
        for _ in range(TRIES):
            answer = ask()
            if answer.status == 200 or (gone and answer.status == 404):
                return
            if answer.status != 500 or not any(race in answer.text for race in TORCHSERVES_RACES):
                break
            self.races += 1
        raise Ended(f"{otherwise}, asked {TRIES} times at most: {answer.status} {answer.text}")

    def _kill_worker(self) -> None:
        """Kill one of the workers while their model has a request, and wait until there are as many again.

        What is under way may fail until TorchServe has seen the death; then another worker is there for it.
        TorchServe waits a second before it starts the next one, and no longer after many deaths: each
        worker that has loaded its model begins anew.
        """
        killed = psutil.Process(self._workers()[self.kills % WORKERS])  # each in turn
        client = self.clients[KILLED]
        wait_for(lambda: client.under_way, f"a request to {KILLED}", pause=0.0005)
        with self._changing(KILLED):
            killed.kill()
            wait_for(
                lambda: killed.pid not in self.server.ready_workers(KILLED),
                f"TorchServe to see that worker {killed.pid} of {KILLED} is dead",
            )
        self.kills += 1
        self._workers()

    def _workers(self) -> list[int]:
        """The processes that are killed in turn, once all of them are ready."""
        found: list[int] = []

        def complete() -> bool:
            found[:] = self.server.ready_workers(KILLED)
            return len(found) == WORKERS

        wait_for(complete, f"{WORKERS} workers of {KILLED}")
        return found

    def change(self) -> None:
        """Kill a worker of one, scale another one up and down, and register a third anew."""
        # First, so that what the pool does after a death has most time to be done with before the sample.
        self._kill_worker()
        with self._changing(SCALED):
            for workers in (MORE_WORKERS, WORKERS):
                self._scale(SCALED, workers)
        with self._changing(CHANGED):
            self._unregister(CHANGED)
            self._register(CHANGED)
        self._end_forgotten()

    def _end_forgotten(self) -> None:
        """End the workers that TorchServe has forgotten in a race with itself, as an operator would.

        A stock worker would stay, too, with all of its memory. TorchServe may start it again.
        """
        for shim in self._unknown():
            with suppress(psutil.NoSuchProcess):
                if time.time() - shim.create_time() > FORGOTTEN_S:
                    shim.kill()
                    self.forgotten += 1

    def _unknown(self) -> list[psutil.Process]:
        """The workers of no registered model."""
        known = {pid for name in MADE_BY if name in self.clients for pid in self.server.ready_workers(name)}
        return [shim for shim in self.server.shims() if shim.pid not in known]

    def sample(self) -> Sample:
        host = self._same_host()
        memory = host.memory_full_info()
        took = self.clients[SCALED].take_seconds()
        if not took:
            raise Ended(f"{SCALED} has given no right answer since the last sample")
        return Sample(
            seconds=time.monotonic() - self._begun,
            requests=sum(client.right for client in self.all_clients),
            memory_mb=memory.pss / MB,
            private_mb=memory.uss / MB,
            descriptors=host.num_fds(),
            mappings=Path(f"/proc/{host.pid}/maps").read_bytes().count(b"\n"),
            threads=host.num_threads(),
            p50_ms=percentile(took, 0.5) * 1000,
            p99_ms=percentile(took, 0.99) * 1000,
            shims_mb=pss_mb(self.server.shims()),
            frontend_mb=pss_mb([self.server.frontend]),
            others=len(self._unknown()),
        )

    def _same_host(self) -> psutil.Process:
        """The one host, which must be the one that was there before; raises Ended."""
        hosts = self.server.hosts()
        self._host = self._host or (hosts[0] if hosts else None)
        if self._host is None or hosts != [self._host]:
            was = self._host.pid if self._host else "none"
            raise Ended(
                f"the host was process {was}, and is {[host.pid for host in hosts]}; "
                f"its log ends so: {self.server.host_log()[-2000:]}"
            )
        return self._host

    def run(self, seconds: float, said: Callable[[Sample], object]) -> list[Sample]:
        """Change it for so long, at least so often that a line can be drawn; a sample after each time.

        Fewer if it cannot go on, and `ended` says why.
        """
        samples: list[Sample] = []
        until = time.monotonic() + seconds
        while not self.ended and (time.monotonic() < until or len(samples) < LEAST_SAMPLES):
            try:
                self.change()
                time.sleep(PAUSE_S)
                samples.append(self.sample())
            except (AssertionError, Ended, OSError, psutil.Error) as error:
                self.ended = f"after {time.monotonic() - self._begun:.0f} s: {error or type(error).__name__}"
                break
            said(samples[-1])
        return samples

    def certain(self) -> list[report.Bar]:
        """What must hold however long it took."""
        clients = self.all_clients
        right, wrong = sum(client.right for client in clients), sum(len(client.wrong) for client in clients)
        return [
            report.Bar("it could go on to its end", float(not self.ended), 1.0),
            report.Bar("right answers, of all answers", right / max(1, right + wrong), 1.0),
            report.Bar("no request was answered twice", float(not self.texts("twice")), 1.0),
            report.Bar("no request failed but as it was to", float(not self.texts("faults")), 1.0),
        ]

    def texts(self, what: str) -> list[str]:
        """Of all clients: what was wrong, came twice, or should not have failed."""
        return [text for client in self.all_clients for text in getattr(client, what)]

    def counted(self) -> dict[str, Any]:
        """For the numbers that are kept."""
        counted = ("right", "failed", "errors", "closed")
        return {
            "answers": {
                f"{name}, {address}": {what: getattr(client, what) for what in counted}
                | {"twice": len(client.twice)}
                for address, clients in (("TorchServe", self.clients), ("direct", self.direct))
                for name, client in clients.items()
            },
            "faults": [*self.texts("wrong"), *self.texts("faults")],
            "twice": self.texts("twice"),
            "kills": self.kills,
            "races": self.races,
            "forgotten": self.forgotten,
            "ended": self.ended,
        }


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


def after(samples: list[Sample]) -> list[Sample]:
    """Without those of the first part of the time, but as many as a line needs.

    Beside workers that TorchServe has forgotten, the host is not in the state in which it is compared.
    """
    samples = [sample for sample in samples if not sample.others] or samples
    begun, end = samples[0].seconds, samples[-1].seconds
    late = [sample for sample in samples if sample.seconds >= begun + WARM * (end - begun)]
    return late if len(late) >= LEAST_SAMPLES // 2 else samples[-LEAST_SAMPLES // 2 :]


def main() -> None:
    parser = report.parser("soak", __doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--long", action="store_true", help="an hour")
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

    (port,) = free_ports(1)
    environment = {"INTERPOOL_INTERPRETERS": "2", "INTERPOOL_DIRECT_ADDRESS": f"127.0.0.1:{port}"}
    with TorchServe(environment=environment) as server, ExitStack() as stack:
        soaked = Soaked(server, f"http://127.0.0.1:{port}", stack)
        for name in (SCALED, CHANGED, FAILING, KILLED):
            soaked.add(name)
        samples = soaked.run(60 * minutes, said)
        control = []
        if not soaked.ended:
            print("  now with a model that leaks", flush=True)
            soaked.add(LEAKING)
            control = soaked.run(60 * options.control_minutes, said)
    kept = {
        **soaked.counted(),
        "samples": [asdict(sample) for sample in samples],
        "control": [asdict(sample) for sample in control],
        "options": vars(options),
    }
    latencies = {"p50": [sample.p50_ms for sample in samples], "p99": [sample.p99_ms for sample in samples]}
    failed = sum(client.failed for client in soaked.all_clients)
    print(f"  {soaked.kills} workers killed; {failed} requests failed while their model was changed")
    for text in [*soaked.texts("wrong"), *soaked.texts("twice"), *soaked.texts("faults")][:10]:
        print(f"  FAULT {text}")
    if soaked.ended:
        print(f"  ENDED {soaked.ended}")
        report.finish("soak", latencies if samples else {}, "ms", soaked.certain(), **kept)
    counted = after(samples)
    found, bars, doubt = judged(counted)
    leaked = after(control)
    leak = slopes_of(leaked)["memory_mb"]
    caught = verdict(leak, limit_of("memory_mb", leaked))
    for what, one in found.items():
        limit = f", at most {one['limit']:.3g}: {one['verdict']}" if "limit" in one else ""
        print(f"  {what:<12} {one['per_hour']:+10.3f} ± {one['error']:.3f} an hour{limit}")
    print(f"  the leak: {leak.per_hour:+.0f} ± {leak.error:.0f} MB an hour: {caught}")
    certain = [*soaked.certain(), report.Bar("the leak is found", float(caught == "grows"), 1.0)]
    if not all(bar.met for bar in certain):
        doubt = ""
    report.finish(
        "soak",
        latencies,
        "ms",
        [*certain, *bars],
        doubt,
        slopes=found,
        leak={**asdict(leak), "verdict": caught},
        counted_from=counted[0].seconds,
        **kept,
    )


if __name__ == "__main__":
    main()
