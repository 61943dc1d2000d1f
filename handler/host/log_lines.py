"""The host's log: lines of text, or of JSON for programs that collect logs.

``rotated_log`` handles the log's files.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Mapping

from interpool.handler.log_format import JsonLines, TextLines, is_json

LEVEL = "INTERPOOL_LOG_LEVEL"


def set_up(environment: Mapping[str, str] = os.environ) -> None:
    """Log to stderr as the environment says. A wrong value is refused later, with all settings."""
    handler = logging.StreamHandler()
    text = TextLines("%(asctime)s %(levelname)s %(name)s: %(message)s", _requests)
    handler.setFormatter(JsonLines(_requests) if is_json(environment) else text)
    level = logging.getLevelNamesMapping().get(environment.get(LEVEL, "").upper(), logging.INFO)
    logging.basicConfig(handlers=[handler], level=level, force=True)


def about(requests: Collection[str]) -> dict[str, Collection[str]]:
    """The ``extra`` of a log record about a call that answers the requests of these ids."""
    return {"requests": requests}


def _requests(record: logging.LogRecord) -> Collection[str]:
    found: Collection[str] = vars(record).get("requests", ())
    return found
