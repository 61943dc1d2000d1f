"""The serving benchmark's client: wrk where there is one, else our own; both check every answer."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

import rest_clients
from neighbour import percentile

JSON = "application/json"
WRK = shutil.which("wrk")
SCRIPT = Path(__file__).with_name("serving_client.lua")


class Met(NamedTuple):
    """What the clients met."""

    rate: float  # right answers a second
    p50_ms: float
    p99_ms: float
    wrong: str  # "" if every answer was right


def measure(url: str, body: bytes, expected: bytes, clients: int, seconds: float) -> Met:
    """Post a body again and again over kept connections, by so many clients that wait for their answers.

    Args:
        expected: each answer's body.
    """
    return (_by_wrk if WRK else _by_ours)(url, body, expected, clients, seconds)


def _by_ours(url: str, body: bytes, expected: bytes, clients: int, seconds: float) -> Met:
    found = rest_clients.load(url, body, JSON, clients, seconds, expected)
    p50, p99 = (1000 * percentile(found.seconds, part) for part in (0.5, 0.99))
    return Met(found.rate, p50, p99, "; ".join(found.errors[:3]))


def _by_wrk(url: str, body: bytes, expected: bytes, clients: int, seconds: float) -> Met:
    assert WRK
    with tempfile.TemporaryDirectory() as folder:
        question, answer = Path(folder) / "question", Path(folder) / "answer"
        question.write_bytes(body)
        answer.write_bytes(expected)
        command = [WRK, "-t1", f"-c{clients}", f"-d{max(1, round(seconds))}s", "--timeout", "60s"]
        command += ["-s", str(SCRIPT), url, "--", str(question), str(answer)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    said = json.loads(done.stdout.splitlines()[-1])
    wrong = (
        f"{said['wrong']} wrong answers, {said['errors']} errors" if said["wrong"] + said["errors"] else ""
    )
    return Met(said["requests"] / said["seconds"], said["p50_ms"], said["p99_ms"], wrong)
