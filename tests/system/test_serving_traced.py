"""A request's trace goes on through TorchServe and the pool, and its log lines say whose they are."""

from __future__ import annotations

import json
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from local_server import TorchServe, free_ports
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from system.comparison.grpc_client import Client
from system.conftest import Mar, make_ordinary, wait_for_log
from waiting import wait_for

pytestmark = pytest.mark.long

OF_A_SERVER = 2  # SpanKind
HANDLER = """
    import logging
    import sys
    import threading
    from opentelemetry import propagate, trace
    from ts.torch_handler.base_handler import BaseHandler

    tracer = trace.get_tracer("mine")

    class Handler(BaseHandler):
        def initialize(self, context):
            self.initialized = True

        def preprocess(self, data):
            with tracer.start_as_current_span("tokenize"):
                return [row["body"] for row in data]

        def inference(self, rows):
            logging.getLogger("mine").info("computing %d", len(rows))
            if "raise" in rows:
                raise ValueError("as you wish")
            if "look" in rows:
                exporting = [name for name in sys.modules if name.startswith("opentelemetry.exporter")]
                return [f"{exporting} {[each.name for each in threading.enumerate()]}"]
            sent = {}
            propagate.inject(sent)
            return [sent.get("traceparent", "") for row in rows]

        def postprocess(self, answers):
            return answers
"""


@dataclass(frozen=True)
class Received:
    """A span as a collector gets it."""

    name: str
    kind: int
    trace: str
    span: str
    parent: str
    links: tuple[str, ...]
    attributes: dict[str, Any]
    failed: bool
    resource: dict[str, Any]


class Collector:
    """Takes traces by OTLP over HTTP."""

    def __init__(self) -> None:
        self.spans: list[Received] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.take(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1/traces"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def take(self, request: Any) -> None:
        for of_resource in request.resource_spans:
            for of_scope in of_resource.scope_spans:
                for span in of_scope.spans:
                    self.spans.append(
                        Received(
                            span.name,
                            span.kind,
                            span.trace_id.hex(),
                            span.span_id.hex(),
                            span.parent_span_id.hex(),
                            tuple(link.span_id.hex() for link in span.links),
                            attributes(span.attributes),
                            span.status.code == 2,
                            attributes(of_resource.resource.attributes),
                        )
                    )

    def of(self, trace: str, *names: str) -> dict[str, Received]:
        """The spans of a trace by name, once those of these names are there."""

        def found() -> dict[str, Received]:
            return {span.name: span for span in list(self.spans) if span.trace == trace}

        wait_for(lambda: set(names) <= set(found()), lambda: f"{names} of {trace}: {self.spans}")
        return found()


def attributes(given: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in given}


class Traced(TorchServe):
    def __init__(self, collector: Collector) -> None:
        (port,) = free_ports(1)
        self.exporter = f"http://127.0.0.1:{port}/metrics"
        super().__init__(
            environment={
                "INTERPOOL_INTERPRETERS": "1",
                "INTERPOOL_ORDINARY_ARCHIVES": "pool",
                "INTERPOOL_METRICS_ADDRESS": f"127.0.0.1:{port}",
                "INTERPOOL_LOG": "json",
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": collector.url,
                "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
                "OTEL_BSP_SCHEDULE_DELAY": "100",
                "OTEL_SERVICE_NAME": "shop",
            }
        )

    def ask(self, value: str, trace: str = "", flags: str = "01", model: str = "m") -> tuple[int, str, str]:
        """Status, answer and request id."""
        headers = {"Content-Type": "application/json" if value.startswith("[") else "text/plain"}
        if trace:
            headers["Traceparent"] = f"00-{trace}-00f067aa0ba902b7-{flags}"
        asked = urllib.request.Request(f"{self.inference}/predictions/{model}", value.encode(), headers)
        try:
            with urllib.request.urlopen(asked) as answer:
                return answer.status, answer.read().decode(), answer.headers["x-request-id"]
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode(), str(error.headers["x-request-id"])


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


@pytest.fixture(scope="module")
def server(collector: Collector) -> Iterator[Traced]:
    with Traced(collector) as running:
        make_ordinary(running, "m", {"handler.py": HANDLER})
        assert running.register("m.mar").status == 200
        query = {"model_name": "together", "batch_size": 3, "max_batch_delay": 5000}
        assert running.register("m.mar", **query).status == 200
        yield running


def trace_number(number: int) -> str:
    return f"4bf92f3577b34da6a3ce929d0e0e{number:04x}"


def test_a_requests_spans_are_in_the_clients_trace(server: Traced, collector: Collector) -> None:
    trace = trace_number(1)
    status, answer, request = server.ask("hello", trace)
    assert status == 200
    stages = ("preprocess", "inference", "postprocess")
    spans = collector.of(trace, "predict m", "queue", "lease", "tokenize", *stages)
    whole, lease = spans["predict m"], spans["lease"]
    assert (whole.parent, whole.kind) == ("00f067aa0ba902b7", OF_A_SERVER)
    assert whole.attributes["interpool.request_id"] == request
    assert whole.attributes["interpool.model"] == "m"
    assert whole.attributes["http.response.status_code"] == 200
    assert spans["queue"].parent == lease.parent == whole.span
    assert {spans[name].parent for name in stages} == {lease.span}
    assert spans["tokenize"].parent == spans["preprocess"].span  # the model's own
    assert answer == f"00-{trace}-{spans['inference'].span}-01"  # what the model would send on
    assert whole.resource["service.name"] == "shop"
    assert whole.resource["interpool.pool"] == "default"
    assert not any(span.failed for span in spans.values())


def test_a_request_that_fails_says_so_where_it_failed(server: Traced, collector: Collector) -> None:
    trace = trace_number(2)
    assert server.ask("raise", trace)[0] == 503
    spans = collector.of(trace, "predict m", "lease", "inference")
    failed = {name for name, span in spans.items() if span.failed}
    assert failed == {"predict m", "lease", "inference"}
    assert spans["predict m"].attributes["error.type"] == "503"


def test_a_trace_that_the_client_does_not_record_is_sent_on_and_not_exported(
    server: Traced, collector: Collector
) -> None:
    quiet, loud = trace_number(3), trace_number(4)
    _, answer, _ = server.ask("hello", quiet, flags="00")
    assert re.fullmatch(rf"00-{quiet}-[0-9a-f]{{16}}-00", answer)
    server.ask("hello", loud)
    collector.of(loud, "predict m")  # came later
    assert all(span.trace != quiet for span in collector.spans)


def test_a_hermetic_models_requests_are_traced_likewise(
    server: Traced, collector: Collector, mar: Mar
) -> None:
    assert server.register(mar(server, "linear", "linear")).status == 200
    trace = trace_number(6)
    status, _, request = server.ask("[1.0, 2.0, 3.0]", trace, model="linear")
    assert status == 200
    spans = collector.of(trace, "predict linear", "queue", "lease")
    assert spans["predict linear"].attributes["interpool.request_id"] == request
    assert spans["lease"].parent == spans["predict linear"].span
    assert "preprocess" not in spans  # a module has no stages


def test_a_request_over_grpc_begins_a_trace_as_torchserve_passes_no_metadata_on(
    server: Traced, collector: Collector
) -> None:
    trace = trace_number(5)
    client = Client(server)
    request = client._request("m", "", {"body": b"hello"})
    metadata = [("traceparent", f"00-{trace}-00f067aa0ba902b7-01")]
    answer = client._inference.Predictions(request, timeout=60, metadata=metadata).prediction.decode()
    client.close()
    begun = answer.split("-")[1]
    assert begun != trace
    assert collector.of(begun, "predict m")["predict m"].parent == ""


def test_a_batch_has_one_lease_and_links_to_its_requests(server: Traced, collector: Collector) -> None:
    traces = [trace_number(10 + index) for index in range(3)]
    with ThreadPoolExecutor(3) as threads:
        answers = [*threads.map(lambda trace: server.ask("hello", trace, model="together"), traces)]
    assert len({answer for _, answer, _ in answers}) == 1  # one call answered all
    requests = {trace: collector.of(trace, "predict together", "queue") for trace in traces}
    whole = {trace: spans["predict together"] for trace, spans in requests.items()}
    (lease,) = [span for spans in requests.values() for span in spans.values() if span.name == "lease"]
    others = {whole[trace].span for trace in traces if trace != lease.trace}
    assert lease.parent == whole[lease.trace].span
    assert set(lease.links) == others
    assert {span.links for trace, span in whole.items() if trace != lease.trace} == {(lease.span,)}
    assert lease.attributes["interpool.batch_size"] == 3


@pytest.mark.usefixtures("server")
def test_the_load_at_a_registration_is_a_trace_of_its_own(collector: Collector) -> None:
    def loaded() -> set[str]:
        loads = [span for span in list(collector.spans) if span.name == "load" and not span.parent]
        return {span.attributes["interpool.model"] for span in loads}

    wait_for(lambda: {"m", "together"} <= loaded(), lambda: f"two loads: {collector.spans}")


def test_latencies_have_traces_as_exemplars_if_openmetrics_is_asked_for(
    server: Traced, collector: Collector
) -> None:
    asked = urllib.request.Request(server.exporter, headers={"Accept": "application/openmetrics-text"})
    with urllib.request.urlopen(asked) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    exemplars: dict[str, list[Any]] = {}
    for family in families:
        for sample in family.samples:
            if sample.exemplar and sample.labels["model"] == "m":
                exemplars.setdefault(family.name, []).append((sample.labels["le"], sample.exemplar))
    exported = {span.trace for span in collector.spans}
    assert set(exemplars) == {"interpool_lease_wait_seconds", "interpool_lease_seconds"}
    for found in exemplars.values():
        for bound, exemplar in found:
            assert exemplar.labels["trace_id"] in exported
            assert exemplar.value <= float(bound)
    with urllib.request.urlopen(server.exporter) as plain:
        assert b"trace_id" not in plain.read()


def test_log_lines_of_a_call_name_its_requests(server: Traced) -> None:
    _, _, request = server.ask("hello")
    wait_for_log(server, request)
    lines = [line for line in server.model_log().splitlines() if request in line]
    said = [json.loads(line[line.index("{") :]) for line in lines if "METRICS" not in line]
    assert {"computing 1"} <= {each["message"] for each in said}
    assert {tuple(each["requests"]) for each in said} == {(request,)}


def test_the_host_exports_and_no_interpreter_does(server: Traced) -> None:
    _, answer, _ = server.ask("look")
    assert answer.startswith("[] [")
    assert "Otel" not in answer
    assert "traces are exported by otlp_proto_http" in server.host_log()
    served = server.pools()["default"]["served"].values()
    assert {model["traces"] for model in served} == {""}  # no model has left any that others would meet
