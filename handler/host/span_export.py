"""Exports the spans that interpreters have made, from the host's process.

So there is one exporter, one queue and one thread for all interpreters. OpenTelemetry's SDK sets them up
from its own environment variables. If these ask for no traces, nothing of the SDK is imported.
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from interpool.handler import spans

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

    from interpool.handler.host.host_state import Exemplar, ExemplarsState

SERVICE_NAME = "interpool"  # if no variable of OpenTelemetry's names another one
FLUSH_S = 3.0

logger = logging.getLogger("interpool.host")


def are_made() -> bool:
    """Whether interpreters are to make spans: the environment asks for them, and the SDK is installed."""
    return spans.are_wanted() and spans.can_be_made()


@dataclass
class Exemplars:
    """The last traced latency of a model in each bucket of a histogram, by the bucket's number."""

    waits: dict[int, Exemplar] = field(default_factory=dict)  # of waits for an interpreter
    leased: dict[int, Exemplar] = field(default_factory=dict)  # of leases of an interpreter

    def note(self, span: ReadableSpan, bounds: Sequence[float]) -> None:
        """Take a span; all but those of waits and leases are ignored.

        Args:
            span: a span that was sampled.
            bounds: the upper bounds of the histograms' buckets, in seconds.
        """
        kept = {spans.QUEUE: self.waits, spans.LEASE: self.leased}.get(span.name)
        scope = span.instrumentation_scope
        if kept is None or scope is None or scope.name != spans.SCOPE:
            return
        if span.context is None or span.start_time is None or span.end_time is None:
            return
        took = (span.end_time - span.start_time) / 1e9
        trace, own = f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}"
        kept[bisect_left(bounds, took)] = trace, own, took, span.end_time / 1e9

    def describe(self) -> ExemplarsState:
        """The exemplars for the host's status, as JSON has them."""
        return {"waits": list(self.waits.items()), "leased": list(self.leased.items())}


class SpanExport:
    """Exports the spans that interpreters have made. Its methods are for the host's control thread.

    Args:
        server: the server's name, as in metrics.
        pool: the pool's name.

    Raises:
        Exception: the SDK does not accept its environment variables. It may raise any type.
    """

    def __init__(self, server: str, pool: str) -> None:
        from opentelemetry.sdk import _configuration
        from opentelemetry.sdk.resources import SERVICE_NAME as NAME
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        made = Resource.create({"interpool.server": server, "interpool.pool": pool})
        if str(made.attributes.get(NAME, "")).startswith("unknown_service"):
            made = made.merge(Resource({NAME: SERVICE_NAME}))
        self._resource = made
        names = _configuration._get_exporter_names("traces") or [
            _configuration._get_exporter_entry_point(spans.OTLP, "traces")
        ]
        exporters, _, _ = _configuration._import_exporters(names, [], [])
        self._processors = [BatchSpanProcessor(exporter()) for exporter in exporters.values()]
        logger.info("traces are exported by %s", ", ".join(exporters))

    def take(self, encoded: Sequence[str], exemplars: Exemplars | None, bounds: Sequence[float]) -> None:
        """Export spans that have ended.

        Args:
            encoded: the spans, each as ``spans.encode`` has encoded it.
            exemplars: those of the spans' model; None if that is gone.
            bounds: the upper bounds of the histograms' buckets, in seconds.
        """
        for each in encoded:
            span = spans.decode(each, self._resource)
            for processor in self._processors:
                processor.on_end(span)
            if exemplars is not None:
                exemplars.note(span, bounds)

    def close(self) -> None:
        """Export what is left; an exporter gets ``FLUSH_S`` at most, as its server may be gone."""
        closing = [threading.Thread(target=processor.shutdown, daemon=True) for processor in self._processors]
        for thread in closing:
            thread.start()
        for thread in closing:
            thread.join(FLUSH_S)


def exporter_of_environment(server: str, pool: str) -> SpanExport | None:
    """The exporter of this host's traces; None if none are wanted or can be made. The log says why not.

    Args:
        server: the server's name, as in metrics.
        pool: the pool's name.
    """
    if not spans.are_wanted():
        return None
    # A server that can serve must not fail because its traces cannot be exported.
    if not spans.can_be_made():
        logger.error(
            "no traces: opentelemetry-sdk is not installed. What to do: pip install 'interpool[tracing]'"
        )
        return None
    try:
        return SpanExport(server, pool)
    except Exception:
        logger.exception("no traces: OpenTelemetry's variables ask for what cannot be had")
        return None
