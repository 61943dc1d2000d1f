"""The host's log: lines of text, or of JSON for programs that collect logs."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping

FORMAT, LEVEL = "INTERPOOL_LOG", "INTERPOOL_LOG_LEVEL"


class JsonLines(logging.Formatter):
    """One JSON object a line: ``time`` (ISO 8601, UTC), ``level``, ``logger``, ``message``, ``exception``."""

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        import json  # a host that logs text starts without it

        second = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "time": f"{second}.{int(record.msecs):03}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def set_up(environment: Mapping[str, str] = os.environ) -> None:
    """Log to stderr as the environment says; what it cannot say is refused later, with all settings."""
    handler = logging.StreamHandler()
    text = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonLines() if environment.get(FORMAT) == "json" else text)
    level = logging.getLevelNamesMapping().get(environment.get(LEVEL, "").upper(), logging.INFO)
    logging.basicConfig(handlers=[handler], level=level, force=True)
