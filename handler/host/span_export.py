"""The host's end of traces: spans that interpreters have made are exported by this process.

So there is one exporter, one queue and one thread for all interpreters. OpenTelemetry's SDK sets them up
by its own environment variables. Where these ask for no traces, nothing of it is imported.
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

SERVICE_NAME = "interpool"  # where no variable of OpenTelemetry's names one
FLUSH_S = 3.0

logger = logging.getLogger("interpool.host")


def are_made() -> bool:
    """Whether interpreters are to make spans: the environment asks for them, and the SDK is installed."""
    return spans.are_wanted() and spans.can_be_made()


@dataclass
class Exemplars:
    """Of a model's latencies, the last traced one in each bucket of a histogram, by the bucket's number."""

    waits: dict[int, Exemplar] = field(default_factory=dict)
    leased: dict[int, Exemplar] = field(default_factory=dict)

    def note(self, span: ReadableSpan, bounds: Sequence[float]) -> None:
        """Take a span; only a wait and a lease count.

        Args:
            span: that was sampled.
            bounds: upper ones, of the histograms' buckets.
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
        """For the host's status, as JSON has it."""
        return {"waits": list(self.waits.items()), "leased": list(self.leased.items())}


class SpanExport:
    """Exports what interpreters have made. Its methods are for the host's control thread.

    Args:
        server: TorchServe's inference address.
        pool: the pool's name.

    Raises:
        Exception: what the SDK has against its variables.
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
            encoded: by ``spans.encode``.
            exemplars: of the model that they are of, None if it is gone.
            bounds: see ``Exemplars``.
        """
        for each in encoded:
            span = spans.decode(each, self._resource)
            for processor in self._processors:
                processor.on_end(span)
            if exemplars is not None:
                exemplars.note(span, bounds)

    def close(self) -> None:
        """Export what is left, as far as there is time: an exporter waits for a server that is gone."""
        closing = [threading.Thread(target=processor.shutdown, daemon=True) for processor in self._processors]
        for thread in closing:
            thread.start()
        for thread in closing:
            thread.join(FLUSH_S)


def exporter_of_environment(server: str, pool: str) -> SpanExport | None:
    """What exports this host's traces; None if none are wanted, or can be: then the log says why."""
    if not spans.are_wanted():
        return None
    # A server that could serve is not stopped by where its traces would go.
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
