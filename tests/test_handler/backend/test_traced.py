"""What traces cost if none are asked for, and what an interpreter sends to its host if some are."""

from __future__ import annotations

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from interpool.handler import spans
from interpool.handler.host import span_export
from interpool.handler.host.service_entry import SERVICE_MODULE, TRACED_MODULE
from interpool.handler.host.span_export import Exemplars
from interpool.handler.worker_reports import SPANS_LIMIT, Report
from interpool.native import InterpreterManager

OVER_HTTP = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}
LOADED = "len([name for name in __import__('sys').modules if name.partition('.')[0] == 'opentelemetry'])"


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({}, False),
        ({"OTEL_SERVICE_NAME": "shop"}, False),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_TRACES_EXPORTER": "none", **OVER_HTTP}, False),
        (OVER_HTTP, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:4318/v1/traces"}, True),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://127.0.0.1:4318/v1/metrics"}, False),
        ({"OTEL_SDK_DISABLED": "true", **OVER_HTTP}, False),
    ],
)
def test_traces_are_made_if_opentelemetrys_variables_ask_for_them(
    environment: dict[str, str], wanted: bool
) -> None:
    assert spans.are_wanted(environment) is wanted


def test_without_them_an_interpreter_imports_nothing_of_opentelemetrys() -> None:
    with InterpreterManager(1, preload=[SERVICE_MODULE]) as manager, manager.acquire_session() as session:
        names = session.global_("builtins", "dict")()
        assert session.global_("builtins", "eval")(LOADED, names).to_value() == 0


SPANS = """
import sys
traced = sys.modules["interpool.handler.backend.traced"]

def make(count, text, reports):
    for _ in range(count):
        with traced._tracer.start_as_current_span("queue", attributes={"text": text}):
            pass
    traced._to_host.send(7, reports)
"""


def test_spans_reach_the_host_whole_and_what_it_has_no_room_for_comes_with_the_next_call() -> None:
    host, inside = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    host.setblocking(False)

    def reports() -> list[Report]:
        found = []
        try:
            while True:
                found.append(Report.receive(host))
        except BlockingIOError:
            return found

    with (
        host,
        inside,
        InterpreterManager(1, preload=[TRACED_MODULE]) as manager,
        manager.acquire_session() as session,
    ):
        names = session.global_("builtins", "dict")()
        session.global_("builtins", "exec")(SPANS, names)
        make = names.attr("__getitem__")("make")
        make(1, "x", inside.fileno())
        (report,) = reports()
        assert (report.kind, report.pid) == ("spans", 7)
        make(1000, "y" * 1000, inside.fileno())  # more than a socket keeps
        first = reports()
        make(1, "last", inside.fileno())
        rest = reports()
        while rest[-1].spans and "last" not in rest[-1].spans[-1]:
            make(0, "", inside.fileno())
            rest += reports()
        sent = [span for each in (*first, *rest) for span in each.spans]
        assert len(sent) == 1001
        assert max(sum(map(len, each.spans)) for each in first) <= SPANS_LIMIT
        assert len({json.loads(span)["context"][1] for span in sent}) == 1001


def test_a_span_is_the_same_on_the_other_side_and_becomes_its_buckets_exemplar() -> None:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    from opentelemetry.trace import Link, SpanContext, SpanKind, TraceFlags, TraceState

    kept = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource.get_empty(), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(kept))
    other = SpanContext(3, 4, True, TraceFlags(1), TraceState([("shop", "a=b")]))
    tracer = provider.get_tracer(spans.SCOPE, "2")
    span = tracer.start_span(
        "lease",
        kind=SpanKind.SERVER,
        links=[Link(other, {"why": "batch"})],
        attributes={"whole": 1, "part": 0.5, "text": "ä", "is": True, "list": [1, 2]},
        start_time=1_000_000_000,
    )
    span.record_exception(ValueError("no"))
    span.end(1_200_000_000)
    (made,) = kept.get_finished_spans()
    assert isinstance(made, ReadableSpan)
    again = spans.decode(spans.encode(made), Resource.get_empty())
    assert json.loads(again.to_json()) == json.loads(made.to_json())
    assert again.links[0].context == other
    exemplars = Exemplars()
    exemplars.note(again, [0.1, 0.5])
    context = span.get_span_context()
    expected = (f"{context.trace_id:032x}", f"{context.span_id:016x}", pytest.approx(0.2), 1.2)
    assert exemplars.describe() == {"waits": [], "leased": [(1, expected)]}


def test_the_host_exports_over_grpc_unless_the_environment_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import grpc
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

    taken: list[Any] = []

    class Collector(trace_service_pb2_grpc.TraceServiceServicer):  # type: ignore[misc]
        def Export(self, request: Any, context: Any) -> Any:  # noqa: N802
            taken.append(request)
            return trace_service_pb2.ExportTraceServiceResponse()

    collector = grpc.server(ThreadPoolExecutor(1))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Collector(), collector)
    port = collector.add_insecure_port("127.0.0.1:0")
    collector.start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
    export = span_export.exporter_of_environment("127.0.0.1:8080", "default")
    assert export is not None
    span = {
        "name": "lease",
        "kind": "SERVER",
        "context": ("1" * 32, "2" * 16, False, 1, ""),
        "parent": None,
        "start": 1,
        "end": 2,
        "attributes": {},
        "events": [],
        "links": [],
        "status": ("UNSET", None),
        "scope": None,
    }
    export.take([json.dumps(span)], None, [])
    export.close()
    collector.stop(None).wait()
    (of_resource,) = taken[0].resource_spans
    resource = {each.key: each.value.string_value for each in of_resource.resource.attributes}
    assert resource["service.name"] == "interpool"
    assert (resource["interpool.server"], resource["interpool.pool"]) == ("127.0.0.1:8080", "default")
    assert of_resource.scope_spans[0].spans[0].span_id.hex() == "2" * 16


def test_a_host_without_the_sdk_or_with_an_unknown_exporter_serves_and_says_why_it_exports_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "carrier-pigeon")
    assert span_export.exporter_of_environment("127.0.0.1:8080", "default") is None
    assert "carrier-pigeon" in caplog.text
    monkeypatch.setattr(spans, "can_be_made", lambda: False)
    assert span_export.exporter_of_environment("127.0.0.1:8080", "default") is None
    assert "pip install 'interpool[tracing]'" in caplog.text
