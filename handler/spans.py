"""Spans of OpenTelemetry's, from the interpreter that makes them to the host that exports them.

OpenTelemetry's own environment variables say what is traced and where spans go. Nothing of
OpenTelemetry's is imported before ``are_wanted`` and ``can_be_made`` say so.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import SpanContext

EXPORTER = "OTEL_TRACES_EXPORTER"
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
OTLP = "otlp"  # the exporter if only an address is named
SCOPE = "interpool"  # of spans that are not a model's
# Names of such spans: a call's wait for an interpreter, and its time in it.
QUEUE, LEASE = "queue", "lease"


def are_wanted(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the environment names an exporter of traces, or an address for them."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporter = environment.get(EXPORTER, "").strip().lower()
    return exporter != "none" if exporter else any(environment.get(name) for name in ENDPOINTS)


def can_be_made() -> bool:
    """Whether OpenTelemetry's SDK is installed."""
    try:
        return importlib.util.find_spec("opentelemetry.sdk.trace") is not None
    except ModuleNotFoundError:
        return False


def encode(span: ReadableSpan) -> str:
    """A span that has ended, without its resource, which is the host's."""
    from interpool.handler.plain_json import as_json  # a host starts its first interpreter without json

    scope = span.instrumentation_scope
    return as_json(
        {
            "name": span.name,
            "kind": span.kind.name,
            "context": _encode_context(span.context),
            "parent": _encode_context(span.parent),
            "start": span.start_time,
            "end": span.end_time,
            "attributes": _plain(span.attributes),
            "events": [(each.name, each.timestamp, _plain(each.attributes)) for each in span.events],
            "links": [(_encode_context(each.context), _plain(each.attributes)) for each in span.links],
            "status": (span.status.status_code.name, span.status.description),
            "scope": (scope.name, scope.version, scope.schema_url) if scope is not None else None,
        }
    )


def decode(encoded: str, resource: Resource) -> ReadableSpan:
    """The span again.

    Args:
        encoded: by ``encode``.
        resource: what made it: this process.
    """
    import json

    from opentelemetry.sdk.trace import Event, ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import Link, SpanKind, Status, StatusCode

    fields = json.loads(encoded)
    code, description = fields["status"]
    links = [(_decode_context(context), attributes) for context, attributes in fields["links"]]
    return ReadableSpan(
        name=fields["name"],
        context=_decode_context(fields["context"]),
        parent=_decode_context(fields["parent"]),
        resource=resource,
        attributes=fields["attributes"],
        events=[Event(name, attributes, when) for name, when, attributes in fields["events"]],
        links=[Link(context, attributes) for context, attributes in links if context is not None],
        kind=SpanKind[fields["kind"]],
        status=Status(StatusCode[code], description),
        start_time=fields["start"],
        end_time=fields["end"],
        instrumentation_scope=InstrumentationScope(*fields["scope"]) if fields["scope"] else None,
    )


def _encode_context(context: SpanContext | None) -> tuple[str, str, bool, int, str] | None:
    if context is None:
        return None
    trace, span = f"{context.trace_id:032x}", f"{context.span_id:016x}"
    return trace, span, context.is_remote, int(context.trace_flags), context.trace_state.to_header()


def _decode_context(encoded: Any) -> SpanContext | None:
    from opentelemetry.trace import SpanContext, TraceFlags, TraceState

    if encoded is None:
        return None
    trace, span, is_remote, flags, state = encoded
    return SpanContext(
        int(trace, 16), int(span, 16), is_remote, TraceFlags(flags), TraceState.from_header([state])
    )


def _plain(attributes: Mapping[str, Any] | None) -> dict[str, Any]:
    return {str(key): _value(value) for key, value in (attributes or {}).items()}


def _value(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_value(each) for each in value]
    for kind in (bool, int, float, str):  # a subclass may have methods that JSON calls
        if isinstance(value, kind):
            return kind(value)
    return str(value)
