"""HTTP clients that wait for each answer, and check it: wrk if it is there, else our own.

wrk takes a tenth of our own clients' CPU time, which is the servers' if all share their cores.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from benchmarks.shared import clients as ours

WRK = shutil.which("wrk")
NAME = "wrk" if WRK else "clients.py"
SCRIPT = Path(__file__).with_name("http_load.lua")


class Met(NamedTuple):
    """What the clients met."""

    requests: int
    rate: float  # a second
    p50_ms: float
    p99_ms: float
    wrong: str  # "" if every answer was right


def measure(url: str, body: bytes, kind: str, expected: bytes, clients: int, seconds: float) -> Met:
    """Post a body again and again over kept connections, by so many clients that wait for their answers.

    Args:
        kind: the body's Content-Type.
        expected: each answer's body.
        seconds: wrk takes whole ones.
    """
    return (_by_wrk if WRK else _by_ours)(url, body, kind, expected, clients, seconds)


def _by_ours(url: str, body: bytes, kind: str, expected: bytes, clients: int, seconds: float) -> Met:
    found = ours.load(url, body, kind, clients, seconds, expected)
    p50, p99 = (1000 * ours.percentile(found.seconds, part) for part in (0.5, 0.99))
    return Met(len(found.seconds), found.rate, p50, p99, "; ".join(found.errors[:3]))


def _by_wrk(url: str, body: bytes, kind: str, expected: bytes, clients: int, seconds: float) -> Met:
    assert WRK
    with tempfile.TemporaryDirectory() as folder:
        question, answer = Path(folder) / "question", Path(folder) / "answer"
        question.write_bytes(body)
        answer.write_bytes(expected)
        command = [WRK, "-t1", f"-c{clients}", f"-d{max(1, round(seconds))}s", "--timeout", "60s"]
        command += ["-s", str(SCRIPT), url, "--", str(question), kind, str(answer)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    said = json.loads(done.stdout.splitlines()[-1])
    failed = said["wrong"] + said["errors"]
    wrong = f"{said['wrong']} wrong answers, {said['errors']} errors" if failed else ""
    rate = said["requests"] / said["seconds"]
    return Met(said["requests"], rate, said["p50_ms"], said["p99_ms"], wrong)
