"""Exports every live pool of this user as Prometheus metrics, and answers probes.

``interpool serve`` starts the exporter beside TorchServe if ``INTERPOOL_METRICS_ADDRESS`` is set;
``interpool exporter`` runs it by itself. It is a process of its own: hosts come and go, its address stays,
and no pool waits for a scrape. It asks the hosts at each scrape, and keeps nothing between scrapes. The
counters are the hosts' own. They begin again with a new host, as Prometheus expects.

As a program (``python -m interpool.handler.host.prometheus --socket=FD --beside=PID``) it answers on a socket
that it inherits. It does so as long as that process lives, or the TorchServe that the process has started.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import http.client
import importlib.metadata
import itertools
import os
import select
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar
from prometheus_client.utils import floatToGoString

from interpool.handler.direct.traffic import TIME_BOUNDS_S
from interpool.handler.errors import SettingsError
from interpool.handler.host.host_state import Exemplar as Traced
from interpool.handler.host.host_state import HostState, interpreters
from interpool.handler.host.model_status import ModelView, models_of, why_not_ready
from interpool.handler.host.readiness import with_probes
from interpool.handler.host.status import ask_hosts, memory_of
from interpool.handler.torchserve import running_frontend

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

    from interpool.native.pool.states import PoolState

# The labels of all pools: `server` is the pool's server (``host_state``), and `pool` its name.
POOL = ("server", "pool")
BUILD = {"version": "interpool", "torch": "torch", "torchserve": "torchserve"}  # distributions, by label
MODEL = (*POOL, "model", "version")
STATES = ("free", "leased", "parked")
WORKER_STATES = ("waiting", "listening", "connected", "ending", "lost")
RELEASE_S = 3.0  # wait so long for the exporter of a stopped server to end: it looks once a second
RETRY_S = 0.1
ANSWER_S = 5.0
MOST_CLIENTS = 32  # at a time: Prometheus and probes are a few

Exemplars = dict[int, Traced]
Samples = Iterable[tuple[tuple[str, ...], float]]  # values of further labels, and the number


def _memory(pool: HostState) -> Samples:
    host = pool["memory"]
    for kind in ("anonymous", "file", "shared_memory", "swap"):
        yield (kind,), host.get(kind, 0)
    shims = [memory_of(worker["pid"]) for worker in pool["workers"]]
    yield ("shims",), sum(shim.get("pss", 0) + shim.get("swap", 0) for shim in shims)


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _stat(number: Callable[[PoolState], float]) -> Callable[[HostState], Samples]:
    return lambda pool: [((), number(pool["interpreters"]))] if pool["interpreters"] else []


# Name (counters without `_total`), type, help, labels beyond the pool's, and the numbers.
POOL_METRICS: tuple[tuple[str, type[Metric], str, tuple[str, ...], Callable[[HostState], Samples]], ...] = (
    (
        "interpool_host_start_time_seconds",
        GaugeMetricFamily,
        "When the pool's host started, in seconds since 1970; it changes when the host is restarted.",
        (),
        lambda pool: [((), pool["started"])],
    ),
    (
        "interpool_interpreters",
        GaugeMetricFamily,
        "Interpreters by state: free, leased, or parked above the pool's minimum size.",
        ("state",),
        lambda pool: [
            ((state,), sum(one["state"] == state for one in interpreters(pool))) for state in STATES
        ],
    ),
    (
        "interpool_interpreters_min",
        GaugeMetricFamily,
        "The pool's minimum size.",
        (),
        _stat(lambda stats: stats["min_size"]),
    ),
    (
        "interpool_interpreters_max",
        GaugeMetricFamily,
        "The maximum size that the pool may grow to.",
        (),
        _stat(lambda stats: stats["max_size"]),
    ),
    (
        "interpool_interpreter_starts",
        CounterMetricFamily,
        "Interpreters that started.",
        (),
        lambda pool: [((), len(interpreters(pool)))],
    ),
    (
        "interpool_interpreter_start_failures",
        CounterMetricFamily,
        "Interpreters that did not start when the pool had to grow or to replace one.",
        (),
        _stat(lambda stats: stats["failed_starts"]),
    ),
    (
        "interpool_interpreter_retirements",
        CounterMetricFamily,
        "Interpreters that serve no more: a call did not come back, or a model left them unfit for others.",
        (),
        lambda pool: [((), sum(one["state"] == "retired" for one in interpreters(pool)))],
    ),
    (
        "interpool_memory_bytes",
        GaugeMetricFamily,
        "Memory (PSS) by kind: anonymous, file (code, weights), shared_memory, swap of the host; its shims.",
        ("kind",),
        _memory,
    ),
    (
        "interpool_private_dirty_bytes",
        GaugeMetricFamily,
        "Memory of the host that no other process shares and that has been written.",
        (),
        lambda pool: [((), pool["memory"].get("private_dirty", 0))],
    ),
)

MODEL_METRICS: tuple[
    tuple[str, type[Metric], str, tuple[str, ...], Callable[[HostState, ModelView], Samples]], ...
] = (
    (
        "interpool_model_ready",
        GaugeMetricFamily,
        "1 if every worker is connected and an interpreter can answer (`interpool status --check`), else 0.",
        (),
        lambda pool, model: [((), not why_not_ready(pool, model))],
    ),
    (
        "interpool_workers",
        GaugeMetricFamily,
        "Workers by state.",
        ("state",),
        lambda _, model: [((state,), model.workers[state]) for state in WORKER_STATES],
    ),
    (
        "interpool_worker_starts",
        CounterMetricFamily,
        "Workers that TorchServe started.",
        (),
        lambda _, model: [((), model.starts)],
    ),
    (
        "interpool_worker_restarts",
        CounterMetricFamily,
        "Those among them that came in the place of one that had ended.",
        (),
        lambda _, model: [((), model.restarts)],
    ),
    (
        "interpool_worker_ends",
        CounterMetricFamily,
        "Workers that ended, by reason.",
        ("reason",),
        lambda _, model: [((why,), count) for why, count in sorted(model.ends.items())],
    ),
    (
        "interpool_calls_waiting",
        GaugeMetricFamily,
        "Calls that wait for an interpreter.",
        (),
        lambda _, model: [((), model.waiting)],
    ),
    (
        "interpool_longest_wait_seconds",
        GaugeMetricFamily,
        "How long the first of these has waited.",
        (),
        lambda _, model: [((), model.longest_wait_s)],
    ),
    (
        "interpool_longest_lease_seconds",
        GaugeMetricFamily,
        "How long the longest of the calls that run has had its interpreter.",
        (),
        lambda _, model: [((), model.longest_lease_s)],
    ),
    (
        "interpool_requests",
        CounterMetricFamily,
        "Requests that were answered, with any status.",
        (),
        lambda _, model: [((), model.requests)],
    ),
    (
        "interpool_failed_requests",
        CounterMetricFamily,
        "Those among them whose batch was answered by an error.",
        (),
        lambda _, model: [((), model.failed_requests)],
    ),
    (
        "interpool_model_interpreters",
        GaugeMetricFamily,
        "Interpreters that have served the model, and have it loaded as a rule.",
        (),
        lambda _, model: [((), len(model.interpreters))],
    ),
    (
        "interpool_model_loads",
        CounterMetricFamily,
        "Times that an interpreter loaded the model.",
        (),
        lambda _, model: [((), model.loads)],
    ),
    (
        "interpool_model_load_seconds",
        CounterMetricFamily,
        "Seconds that these loads took.",
        (),
        lambda _, model: [((), model.load_s)],
    ),
    (
        "interpool_model_load_failures",
        CounterMetricFamily,
        "Times that an interpreter could not load the model.",
        (),
        lambda _, model: [((), model.failed_loads)],
    ),
)


# Name, help, and of a model's leases the numbers by bucket, the seconds together, and exemplars by bucket.
HISTOGRAMS: tuple[tuple[str, str, Callable[[ModelView], tuple[list[int], float, Exemplars]]], ...] = (
    (
        "interpool_lease_wait_seconds",
        "How long leases of an interpreter were waited for; their count is that of the leases.",
        lambda model: (model.waits, model.waited_s, model.wait_exemplars),
    ),
    (
        "interpool_lease_seconds",
        "How long interpreters were leased for the model, for a batch each; of leases that have ended.",
        lambda model: (model.leased, model.leased_s, model.lease_exemplars),
    ),
)


class PoolCollector(Collector):
    """Asks the hosts at each scrape.

    Args:
        ask: returns the states that the pools' hosts have sent, and texts on the hosts that did not answer.
    """

    def __init__(self, ask: Callable[[], tuple[list[HostState], list[str]]] = ask_hosts) -> None:
        self._ask = ask

    def describe(self) -> Iterable[Metric]:
        """All metrics without samples, so that registering the collector asks no host."""
        return self._metrics([], [])

    def collect(self) -> Iterable[Metric]:
        """All metrics; each host is asked once."""
        return self._metrics(*self._ask())

    @staticmethod
    def _metrics(pools: list[HostState], silent: list[str]) -> Iterator[Metric]:
        build = GaugeMetricFamily("interpool_build_info", "Versions, 1 each.", labels=[*BUILD])
        build.add_metric([_version(name) for name in BUILD.values()], 1)
        yield build
        yield GaugeMetricFamily("interpool_pools", "Pools whose hosts answered.", value=len(pools))
        yield GaugeMetricFamily(
            "interpool_silent_hosts", "Hosts that listen and did not answer in time.", value=len(silent)
        )
        named = [((str(pool["server"]), str(pool["pool"])), pool) for pool in pools]
        for name, kind, text, labels, of_pool in POOL_METRICS:
            family = kind(name, text, labels=(*POOL, *labels))  # type: ignore[call-arg]
            for of, pool in named:
                _add(family, of, of_pool(pool))
            yield family
        models = [
            ((*of, model.name, model.version), pool, model) for of, pool in named for model in models_of(pool)
        ]
        for name, kind, text, labels, of_model in MODEL_METRICS:
            family = kind(name, text, labels=(*MODEL, *labels))  # type: ignore[call-arg]
            for values, pool, model in models:
                if model.registered or kind is CounterMetricFamily:
                    _add(family, values, of_model(pool, model))
            yield family
        for name, text, of_times in HISTOGRAMS:
            histogram = HistogramMetricFamily(name, text, labels=MODEL)
            for values, pool, model in models:
                counts, seconds, exemplars = of_times(model)
                if counts and pool["interpreters"]:  # the pool forgets models that are gone
                    bounds = [*map(floatToGoString, pool["interpreters"]["time_bounds_s"]), "+Inf"]
                    totals = itertools.accumulate(counts)
                    traced = (exemplars.get(index) if count else None for index, count in enumerate(counts))
                    buckets = list(map(_bucket, bounds, totals, traced))
                    histogram.add_metric(values, buckets, sum_value=seconds)
            yield histogram
        yield from _direct_metrics(named)


def _direct_metrics(pools: list[tuple[tuple[str, str], HostState]]) -> Iterator[Metric]:
    """The metrics of direct addresses; pools without one have no samples."""
    answers = CounterMetricFamily(
        "interpool_direct_requests",
        "Requests that the direct address answered, by status.",
        labels=(*MODEL, "status"),
    )
    waiting = GaugeMetricFamily(
        "interpool_direct_requests_waiting",
        "Requests at the direct address that wait for a worker.",
        labels=MODEL,
    )
    times = HistogramMetricFamily(
        "interpool_direct_request_seconds",
        "Seconds from a request's last byte at the direct address to its answer.",
        labels=MODEL,
    )
    bounds = [*map(floatToGoString, TIME_BOUNDS_S), "+Inf"]
    for of, pool in pools:
        direct = pool.get("direct")
        for one in direct["models"] if direct is not None else ():
            name, _, version = one["model"].rpartition("/")
            values = (*of, name, version)
            for status, count in one["answers"].items():
                answers.add_metric((*values, status), count)
            waiting.add_metric(values, one["waiting"])
            buckets = list(zip(bounds, itertools.accumulate(one["times"]), strict=True))
            times.add_metric(values, buckets, sum_value=one["seconds"])
    yield from (answers, waiting, times)


def _bucket(bound: str, total: int, traced: Traced | None) -> tuple[str, float] | tuple[str, float, Exemplar]:
    """A bucket with its exemplar, if it has one. OpenMetrics shows it; Prometheus's older format does not."""
    if traced is None:
        return bound, total
    trace, span, seconds, ended = traced
    return bound, total, Exemplar({"trace_id": trace, "span_id": span}, seconds, ended)


def _add(family: Any, values: tuple[str, ...], samples: Samples) -> None:
    for more, number in samples:
        family.add_metric((*values, *more), float(number))


def listen(address: str) -> socket.socket:
    """A listening socket for the metrics.

    Args:
        address: ``[http://]HOST:PORT``. Without a host it is this machine's loopback address: models' names
            and load are not shown to other machines unless the operator says so.

    Raises:
        SettingsError: the address is malformed, or nothing can listen there (its cause is an ``OSError``).
    """
    place = _host_and_port(address)
    try:
        found = socket.getaddrinfo(*place, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, where = found[0]
        is_v6 = family == socket.AF_INET6
        return socket.create_server(where, family=family, backlog=16, dualstack_ipv6=is_v6)
    except OSError as error:
        raise SettingsError(f"the metrics cannot be served at {address}: {error}") from error


def listen_beside_others(address: str) -> socket.socket | None:
    """Do as ``listen`` does, for a server's own exporter; None if another server's exporter answers there.

    It waits for the exporter of a server that was stopped a moment ago to end.

    Raises:
        SettingsError: as for ``listen``.
    """
    patience = time.monotonic() + RELEASE_S
    while True:
        try:
            return listen(address)
        except SettingsError as refusal:
            if getattr(refusal.__cause__, "errno", 0) != errno.EADDRINUSE:
                raise
            if time.monotonic() >= patience:
                if _is_exporter(*_host_and_port(address)):
                    return None
                raise
        time.sleep(RETRY_S)


def _host_and_port(address: str) -> tuple[str, int]:
    host, colon, port = address.removeprefix("http://").rstrip("/").rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise SettingsError(f"an address for metrics is HOST:PORT, such as 127.0.0.1:9191, not {address!r}")
    return host.strip("[]") or "127.0.0.1", int(port)


def _is_exporter(host: str, port: int) -> bool:
    """Whether an exporter of interpool's answers there."""
    with contextlib.closing(http.client.HTTPConnection(host, port, timeout=ANSWER_S)) as connection:
        try:
            connection.request("GET", "/metrics?name[]=interpool_pools")
            return b"# TYPE interpool_pools gauge" in connection.getresponse().read(65536)
        except (OSError, http.client.HTTPException):
            return False


class _Handler(WSGIRequestHandler):
    timeout = 10.0  # seconds: a client that sends nothing must not keep a thread for ever

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Write no log line for a scrape."""


class _Server(ThreadingWSGIServer):
    """Answers each request in a thread of its own, on a socket that listens already."""

    timeout = 1.0  # seconds for which it waits for a request

    def __init__(self, listener: socket.socket, app: WSGIApplication) -> None:
        super().__init__(listener.getsockname(), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.server_name, self.server_port = listener.getsockname()[:2]
        self.setup_environ()
        self.set_app(app)

    def verify_request(self, *_: object) -> bool:
        """Whether to answer; else the connection is closed at once. The main thread counts, too."""
        return threading.active_count() <= MOST_CLIENTS

    def handle_error(self, *_: object) -> None:
        """Write nothing if a client goes away or sends nothing; of other errors, the library has written."""


def url_of(listener: socket.socket) -> str:
    """The URL at which Prometheus finds the metrics."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}/metrics" if ":" in host else f"http://{host}:{port}/metrics"


def serve_metrics(listener: socket.socket, until: Callable[[], bool]) -> None:
    """Answer scrapes, each in a thread of its own.

    Args:
        listener: a listening socket.
        until: returns whether to stop; called at least once a second.
    """
    registry = CollectorRegistry()
    registry.register(PoolCollector())
    with _Server(listener, with_probes(make_wsgi_app(registry), ask_hosts)) as server:
        while not until():
            server.handle_request()


def beside(pid: int) -> Callable[[], bool]:
    """A function that returns whether a process has ended, and with it the TorchServe that it started."""
    try:
        starter = [os.pidfd_open(pid)]
    except OSError:
        starter = []  # it has ended

    def over() -> bool:
        return select.select(starter, [], [], 0)[0] == starter and running_frontend() is None

    return over


def main(arguments: list[str]) -> None:
    """Entry point of the exporter that `interpool serve` starts."""
    parser = argparse.ArgumentParser(prog="python -m interpool.handler.host.prometheus")
    parser.add_argument("--socket", type=int, required=True)
    parser.add_argument("--beside", type=int, required=True)
    options = parser.parse_args(arguments)
    serve_metrics(socket.socket(fileno=options.socket), beside(options.beside))


if __name__ == "__main__":
    main(sys.argv[1:])
