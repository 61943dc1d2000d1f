"""What a log line looks like, in the host and of a call: text, or JSON for programs that collect logs.

A line of a call names the requests that the call answers. Text has the beginnings of the first few ids; JSON
has all ids in full. TorchServe makes the ids, and answers with them (``x-request-id``).
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection, Mapping
from itertools import islice

FORMAT = "INTERPOOL_LOG"
_DIGITS = 8  # of an id, which has 32 random ones
_MOST = 4  # ids in a line of text

Requests = Callable[[logging.LogRecord], Collection[str]]
"""The ids of the requests that a record is about."""


def is_json(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the environment asks for JSON."""
    return environment.get(FORMAT) == "json"


def named(requests: Collection[str]) -> str:
    """Requests as a line of text ends with them, "" if there are none."""
    if not requests:
        return ""
    ids = ", ".join(each[:_DIGITS] for each in islice(requests, _MOST))
    more = f" and {len(requests) - _MOST} more" if len(requests) > _MOST else ""
    return f" [request{'s' if len(requests) > 1 else ''} {ids}{more}]"


class TextLines(logging.Formatter):
    """Python's own lines, and at the end of a message its requests."""

    def __init__(self, pattern: str, requests: Requests) -> None:
        super().__init__(pattern)
        self._requests = requests

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """See logging.Formatter."""
        return super().formatMessage(record) + named(self._requests(record))


class JsonLines(logging.Formatter):
    """One JSON object a line.

    It has ``time`` (ISO 8601, UTC), ``level``, ``logger`` and ``message``; ``requests`` of a call, and
    ``exception`` of an error.
    """

    def __init__(self, requests: Requests) -> None:
        super().__init__()
        self._requests = requests

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        from interpool.handler.plain_json import as_readable_json  # a host that logs text starts without it

        second = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, object] = {
            "time": f"{second}.{int(record.msecs):03}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if requests := self._requests(record):
            line["requests"] = list(requests)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return as_readable_json(line)
