"""The host's log as a program reads it."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime

PROGRAM = """
import logging
from interpool.handler.host import log_lines
log_lines.set_up({settings})
logging.getLogger("interpool.host").debug("not shown")
try:
    1 / 0
except ZeroDivisionError:
    logging.getLogger("interpool.host").exception("a line\\nof %s", "två")
"""


def _said(settings: dict[str, str]) -> str:
    program = PROGRAM.format(settings=settings)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stderr


def test_each_line_of_json_is_one_record() -> None:
    (line,) = _said({"INTERPOOL_LOG": "json"}).splitlines()
    record = json.loads(line)
    assert (record["level"], record["logger"], record["message"]) == (
        "ERROR",
        "interpool.host",
        "a line\nof två",
    )
    assert datetime.fromisoformat(record["time"]).tzinfo is UTC
    assert "ZeroDivisionError" in record["exception"]


def test_text_is_the_default_and_a_level_is_the_least_that_is_shown() -> None:
    assert "ERROR interpool.host: a line\nof två" in _said({})
    assert "not shown" in _said({"INTERPOOL_LOG_LEVEL": "debug"})
