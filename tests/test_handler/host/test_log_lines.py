"""The host's log as a program reads it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

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


def test_a_line_about_a_call_names_its_requests() -> None:
    program = """
import logging
from interpool.handler.host import log_lines
log_lines.set_up({settings})
ids = [f"{{number:032x}}"[::-1] for number in range(1, 7)]
logging.getLogger("interpool.host").warning("one", extra=log_lines.about(ids[:1]))
logging.getLogger("interpool.host").warning("six", extra=log_lines.about(ids))
"""

    def said(settings: dict[str, str]) -> list[str]:
        command = [sys.executable, "-c", program.format(settings=settings)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stderr.splitlines()

    one, six = said({})
    assert one.endswith("WARNING interpool.host: one [request 10000000]")
    assert six.endswith("six [requests 10000000, 20000000, 30000000, 40000000 and 2 more]")
    assert [len(json.loads(line)["requests"]) for line in said({"INTERPOOL_LOG": "json"})] == [1, 6]


class Host:
    """A process whose descriptor 2 is a log, as a host's is; it writes what the test asks for."""

    PROGRAM = """
import logging, os, sys
from interpool.handler.config import HostSettings
from interpool.handler.host import log_lines, rotated_log
log_lines.set_up()
settings = {"INTERPOOL_LOG_MB": "0.001", "INTERPOOL_LOG_FILES": "2"}
rotated_log.install(HostSettings.of_environment(settings))
os.dup2(2, 1)
for line in sys.stdin:
    if line == "look\\n":
        rotated_log.look()
    elif line.startswith("native "):
        os.write(1, line.removeprefix("native ").encode())
    else:
        logging.getLogger("interpool.host").info("%s", line.rstrip())
    os.write(int(sys.argv[1]), b".")
"""

    def __init__(self, log: Path) -> None:
        self.log = log
        self._done, done = os.pipe()
        with log.open("a") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-c", self.PROGRAM, str(done)],
                stdin=subprocess.PIPE,
                stderr=file,
                pass_fds=[done],
                text=True,
            )
        os.close(done)

    def do(self, *lines: str) -> None:
        assert self._process.stdin is not None
        for line in lines:
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()
            assert os.read(self._done, 1) == b"."

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait() == 0
        os.close(self._done)

    def files(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in sorted(self.log.parent.iterdir())}


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path / "host.log")
    yield made
    made.end()


def test_a_log_is_rotated_by_its_size_also_if_others_write_to_it_and_so_many_are_kept(host: Host) -> None:
    host.do("first", "look", "native " + "x" * 1000)
    assert [*host.files()] == ["host.log"]  # not in the middle of a line
    host.do("look", "second", "native third")
    files = host.files()
    assert [*files] == ["host.log", "host.log.1"]
    assert "first" in files["host.log.1"]
    assert files["host.log"].endswith("second\nthird\n")
    for _ in range(3):
        host.do("native " + "y" * 1000, "look")
    assert [*host.files()] == ["host.log", "host.log.1", "host.log.2"]
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in host.log.parent.glob("host.log"))


def test_a_log_that_logrotate_has_moved_is_begun_anew(host: Host) -> None:
    host.do("before")
    host.log.rename(host.log.with_name("moved.log"))
    host.do("look", "after", "native printed")
    files = host.files()
    assert "before" in files["moved.log"]
    assert "after" in files["host.log"]
    assert files["host.log"].endswith("printed\n")
    assert "after" not in files["moved.log"]
