"""Makes OpenTelemetry spans of a worker's requests: the host uses this service instead of ``WorkerService``.

Each request has a span, whose parent is the client's (``traceparent`` in the request's headers). In it are
the wait for an interpreter, and the *lease* with what the model did. A batch has one lease. It is in the
trace of the first request that is recorded, and linked with the spans of the others.

While the model runs, the lease is the current span. If code of the model uses OpenTelemetry, it makes its
spans in the lease, and propagates its context. The model needs no exporter: spans that end here go to the
host (``handler.spans``), which exports them.
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from weakref import WeakSet

from opentelemetry import context as contexts
from opentelemetry import propagate, trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.trace import Link, Span, SpanKind, StatusCode

import _interpool
from interpool.handler import spans
from interpool.handler.backend import service
from interpool.handler.backend.codec import Batch, request_ids
from interpool.handler.backend.packed_model import PackedModel
from interpool.handler.worker_reports import SPANS_LIMIT, Report
from interpool.native.inside import interpreter_id

_KEPT = 2048  # spans that wait for the next call, as many as OpenTelemetry's own processor keeps
_LONGEST = 4096  # characters of an attribute, unless OpenTelemetry's variables say another number
_STAGES = ("preprocess", "inference", "postprocess")
_SUCCESS, _FAILED = 200, 500
_CODE_BYTES = 4  # at the beginning of an answer

logger = logging.getLogger()


class _ToHost(SpanProcessor):
    """Keeps ended spans until the end of a call. Spans may end in any thread; a deque is safe for that."""

    def __init__(self) -> None:
        self._ended: deque[str] = deque(maxlen=_KEPT)

    def on_end(self, span: ReadableSpan) -> None:
        """See SpanProcessor."""
        if span.context is None or not span.context.trace_flags.sampled:
            return
        encoded = spans.encode(span)
        if len(encoded) <= SPANS_LIMIT:
            self._ended.append(encoded)
        else:
            logger.warning("interpool: the span %r is too large to be exported", span.name)

    def send(self, pid: int, reports: int) -> None:
        """Send the spans that have ended to the host. If it has no room, the rest goes with the next call's.

        Args:
            pid: identifies the worker: the process id in its token.
            reports: descriptor of the socket that takes the reports.
        """
        while self._ended:
            part: list[str] = []
            with suppress(IndexError):  # another call's thread may have taken the last one
                while sum(map(len, part)) + len(self._ended[0]) <= SPANS_LIMIT:
                    part.append(self._ended.popleft())
            if not Report("spans", pid, interpreter_id() or 0, spans=tuple(part)).send(reports):
                self._ended.extendleft(reversed(part))
                return


def _limits() -> SpanLimits:
    given = "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT"
    return SpanLimits() if any(map(os.environ.get, given)) else SpanLimits(max_attribute_length=_LONGEST)


_to_host = _ToHost()
_provider = TracerProvider(resource=Resource.get_empty(), shutdown_on_exit=False, span_limits=_limits())
_provider.add_span_processor(_to_host)
trace.set_tracer_provider(_provider)  # so spans that a model makes by the API alone are exported, too
_tracer = _provider.get_tracer(spans.SCOPE)
_with_stages: WeakSet[Any] = WeakSet()  # models


class TracedService(service.WorkerService):
    """See ``WorkerService``."""

    _leased = 0
    _load_times: tuple[int, int] | None = None

    def __call__(self, frame: bytes | memoryview) -> tuple[bytes | bytearray, bool] | None:
        """See ``WorkerService``."""
        self._leased, self._load_times = time.time_ns(), None
        try:
            return super().__call__(frame)
        finally:
            _to_host.send(self._token.pid, self._token.reports)

    def _load(self) -> tuple[bytes, bool]:
        with _tracer.start_as_current_span("load", attributes=self._attributes) as span:
            reply, stays = super()._load()
            _note_code(span, reply)
            return reply, stays

    def _loaded_again(self) -> Any:
        if self._is_loaded():
            return super()._loaded_again()
        began = time.time_ns()
        try:
            return super()._loaded_again()
        finally:
            self._load_times = began, time.time_ns()

    def _not_loaded(self, requests: Batch, text: str, code: int) -> bytes:
        reply = super()._not_loaded(requests, text, code)
        _Call(self._attributes, requests, self._leased, self._load_times).end(reply, None)
        return reply

    def _run(self, model: Any, batch: Batch) -> bytes | bytearray:
        if model not in _with_stages:
            _with_stages.add(model)
            _trace_stages(model.service)
        call = _Call(self._attributes, batch, self._leased, self._load_times)
        current = contexts.attach(call.context)
        reply: bytes | bytearray = b""
        try:
            reply = super()._run(model, batch)
        except BaseException as error:
            call.fail(error)
            raise
        finally:
            contexts.detach(current)
            call.end(reply, model.service.context)
        return reply

    @functools.cached_property
    def _attributes(self) -> dict[str, str | int]:
        return {"interpool.model": self.model_name, "interpool.interpreter": interpreter_id() or 0}


class _Call:
    """The spans of one call.

    Args:
        attributes: of all of them.
        batch: the requests.
        leased: when the interpreter was, as OpenTelemetry counts: nanoseconds since 1970.
        load: when the model was loaded before it could be called, from and to.

    Attributes:
        context: the model's.
    """

    def __init__(
        self,
        attributes: dict[str, str | int],
        batch: Batch,
        leased: int,
        load: tuple[int, int] | None,
    ) -> None:
        waited = time.monotonic() - _interpool.message_received()
        received = min(leased, time.time_ns() - int(waited * 1e9))
        self._requests: list[Span] = []
        ids = request_ids(batch)
        for index, headers in enumerate(_headers(batch)):
            span = _tracer.start_span(
                f"predict {attributes['interpool.model']}",
                context=propagate.extract(headers),
                kind=SpanKind.SERVER,
                attributes={**attributes, "interpool.request_id": ids[index]},
                start_time=received,
            )
            self._requests.append(span)
            queue = _tracer.start_span(spans.QUEUE, trace.set_span_in_context(span), start_time=received)
            queue.end(leased)
        first, *others = sorted(self._requests, key=lambda span: not span.is_recording())
        self._lease = _tracer.start_span(
            spans.LEASE,
            trace.set_span_in_context(first),
            attributes={**attributes, "interpool.batch_size": len(self._requests)},
            links=[Link(other.get_span_context()) for other in others],
            start_time=leased,
        )
        for other in others:
            other.add_link(self._lease.get_span_context())
        self.context = trace.set_span_in_context(self._lease)
        if load is not None:
            _tracer.start_span("load", self.context, start_time=load[0]).end(load[1])

    def fail(self, error: BaseException) -> None:
        """Note the error that ended the call without an answer."""
        self._lease.record_exception(error)
        for span in (self._lease, *self._requests):
            span.set_status(StatusCode.ERROR, type(error).__name__)

    def end(self, reply: bytes | bytearray, context: Any) -> None:
        """End the spans.

        Args:
            reply: the answer, empty if there is none.
            context: TorchServe's context, which has each request's status; None if the model was not called.
        """
        if reply:
            _note_code(self._lease, reply)
            for index, span in enumerate(self._requests):
                _note_code(span, reply)
                if _code(reply) == _SUCCESS:
                    with suppress(Exception):  # a model may have replaced the method
                        _note_status(span, context.get_response_status(index)[0])
        self._lease.end()
        for span in self._requests:
            span.end()


def _headers(batch: Batch) -> list[dict[str, str]]:
    """The headers of each request, by names in lower case."""
    if isinstance(batch, tuple):
        given = [processor.get_request_properties() for processor in batch[0]]
        return [
            {name.lower(): value for name, value in each.items() if isinstance(value, str)} for each in given
        ]
    return [
        {pair["name"].decode().lower(): pair["value"].decode() for pair in request.get("headers") or ()}
        for request in batch
    ]


def _note_code(span: Span, reply: bytes | bytearray) -> None:
    """Note the code of an answer. It is the code of each request that has none of its own."""
    _note_status(span, _code(reply))


def _code(reply: bytes | bytearray) -> int:
    return int.from_bytes(reply[:_CODE_BYTES], "big", signed=True)


def _note_status(span: Span, code: int) -> None:
    span.set_attribute("http.response.status_code", code)
    if code >= _FAILED:
        span.set_attribute("error.type", str(code))
        span.set_status(StatusCode.ERROR)


def _trace_stages(of_model: Any) -> None:
    """Make a span of each stage if a handler has TorchServe's stages.

    The handler looks up each stage when it calls it, so an attribute can replace it.
    """
    entry = getattr(inspect.unwrap(of_model._entry_point), "__self__", None)
    if isinstance(entry, PackedModel):
        entry = entry.entry
    for name in _STAGES:
        if callable(stage := getattr(entry, name, None)):
            with suppress(AttributeError, TypeError):  # the handler may not allow new attributes
                setattr(entry, name, _traced(name, stage))


def _traced(name: str, stage: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stage)
    def in_span(*args: Any, **keywords: Any) -> Any:
        with _tracer.start_as_current_span(name):
            return stage(*args, **keywords)

    return in_span
