"""Writes TorchServe's own log lines of a request, without log records if no code would see them.

TorchServe logs two lines of each request, and those of its metrics, through Python's ``logging``. While
``logging`` is as the worker set it up, this only writes a line. Then the line goes directly to the call's
output, where it waits for the call's next line or its end (``stdio``). If a model has changed any part of
``logging`` (handlers, formats, filters, levels, the classes' methods), log records are made as usual.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Collection
from typing import Any

from ts.metrics.caching_metric import CachingMetric

import _interpool
from interpool.handler.backend import stdio
from interpool.handler.log_format import JsonLines, TextLines, is_json, named
from interpool.handler.torchserve import METRICS_LINE

_metrics: Any = sys.modules[CachingMetric.__module__]
_root = logging.getLogger()


# The functions that a line passes; tools for tracing replace some of them.
_is_stock = _interpool.watched(
    (logging, "info"),
    (logging.Logger, "info"),
    (logging.Logger, "makeRecord"),
    (logging.Logger, "handle"),
    (logging.Logger, "callHandlers"),
    (logging.Handler, "handle"),
    (logging.Handler, "format"),
    (logging.StreamHandler, "emit"),
    (logging.Formatter, "format"),
    (logging.LogRecord, "getMessage"),
)
_STOCK_FACTORY = logging.getLogRecordFactory()
_formatter: logging.Formatter = logging.Formatter()  # of the one handler that was set up
_stream: Any = None  # of that handler


def install() -> None:
    """Log as TorchServe's worker does, and TorchServe's metrics by ``_MetricsLogger``."""
    global _formatter, _stream
    _stream = sys.stdout
    _formatter = (
        _JsonLines(lambda _: stdio.requests()) if is_json() else TextLines("%(message)s", _requests_in_text)
    )
    handler = logging.StreamHandler(_stream)
    handler.setFormatter(_formatter)
    logging.basicConfig(handlers=[handler], level=logging.INFO, force=True)
    if not isinstance(_metrics.logger, _MetricsLogger):
        _metrics.logger = _MetricsLogger(_metrics.logger)


def _is_plain(logger: logging.Logger) -> bool:
    """Whether an INFO record of that logger becomes its message in the call's stdout, and nothing more."""
    if logger.disabled or logger.filters or not logger.isEnabledFor(logging.INFO):
        return False
    each: logging.Logger | None = logger
    while each is not _root:
        if each is None or each.handlers or not each.propagate:
            return False
        each = each.parent
    if len(_root.handlers) != 1:
        return False
    handler = _root.handlers[0]
    return (
        type(handler) is logging.StreamHandler
        and handler.stream is _stream
        and handler.formatter is _formatter
        and not handler.filters
        and handler.level <= logging.INFO
        and _is_stock()
        and logging.getLogRecordFactory() is _STOCK_FACTORY
    )


def batch_received(log: Callable[[], object], requests: Collection[str]) -> None:
    """Write TorchServe's line about a batch that came.

    Args:
        log: makes TorchServe log it.
        requests: the ids of the batch's requests; from now on all lines of the call have them.
    """
    notes = stdio.answers(requests)
    if type(_formatter) is TextLines and _is_plain(_root):
        if not notes:
            return
        line = f"Backend received inference at: {int(time.time())}{named(requests)}"
        if stdio.hold(line + "\n"):
            return
    log()


def _requests_in_text(record: logging.LogRecord) -> Collection[str]:
    """The ids that a line gets: only lines of TorchServe and interpool do; a model's lines stay unchanged."""
    own = record.name.startswith("ts.") or str(record.msg).startswith(("interpool:", "Backend received "))
    return stdio.requests() if own and not _is_metric(record) else ()


def _is_metric(record: logging.LogRecord) -> bool:
    return isinstance(record.msg, str) and record.msg.startswith(METRICS_LINE)


class _JsonLines(JsonLines):
    """Formats lines as JSON, except those of metrics, which TorchServe reads."""

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        return record.getMessage() if _is_metric(record) else super().format(record)


def metric(line: str) -> bool:
    """Write a metric's line as TorchServe does.

    Returns:
        False if a model has changed how it is logged. Then nothing has been written.
    """
    logger = _metrics.logger
    return type(logger) is _MetricsLogger and logger.hold(line)


def metrics_are_plain() -> bool:
    """Whether ``metric`` would write a line."""
    logger = _metrics.logger
    return type(logger) is _MetricsLogger and logger.is_plain()


class _MetricsLogger:
    """The logger of TorchServe's metrics, which are logged by ``info``."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def __getattr__(self, name: str) -> Any:
        return getattr(self._logger, name)

    def info(self, line: str) -> None:
        """Log a line without arguments, in the name of the caller."""
        if not self.hold(line):
            self._logger.info(line, stacklevel=2)

    def hold(self, line: str) -> bool:
        """Log a line if no model has changed how it is logged; returns whether it is logged."""
        return self.is_plain() and (not stdio.has_metrics() or stdio.hold(line + "\n"))

    def is_plain(self) -> bool:
        """Whether a line becomes its text and nothing more."""
        return _is_plain(self._logger)
