"""Benchmarks run, check what they time, and keep what they measured. How fast it is, they say themselves."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import otf
import pytest
from paths import ROOT
from waiting import wait_for

BENCHMARKS = ROOT / "scripts" / "benchmarks"


def test_session_measures_calls_and_tensors_of_every_size(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "session.py"), "--rounds", "4", "--calls", "20"],
        env={**os.environ, "INTERPOOL_RESULTS": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode in (0, 1, 3), done.stderr
    (kept,) = tmp_path.glob("session-*.json")
    result = json.loads(kept.read_text())
    assert result["outcome"] == {0: "passed", 1: "failed", 3: "inconclusive"}[done.returncode]
    assert str(kept) in done.stdout
    sizes = [f"tensor of {size:,}" for size in (10, 1_000, 100_000, 10_000_000)]
    assert list(result["measured"]) == [
        "plain call",
        "lease",
        "call in an open session",
        "by hand",
        "call of a movable object",
        *sizes,
    ]
    assert all(len(values) == 4 and min(values) > 0 for values in result["measured"].values())
    assert min(result["over_plain_us"].values()) > 0
    assert result["large_over_small"] > 0


@pytest.mark.parametrize("lines", [False, True])
def test_the_backend_that_answers_at_once_speaks_torchserves_protocol(tmp_path: Path, lines: bool) -> None:
    address = tmp_path / "s.9000"
    command = [sys.executable, str(BENCHMARKS / "rest_at_once.py"), "--sock-type", "unix", "--sock-name"]
    environment = {**os.environ, "REST_LINES": "yes" if lines else ""}
    with (
        subprocess.Popen([*command, str(address)], stdout=subprocess.PIPE, env=environment) as worker,
        socket.socket(socket.AF_UNIX) as frontend,
    ):
        wait_for(address.exists, "the worker")
        frontend.settimeout(60)
        frontend.connect(str(address))

        def ask(message: bytes) -> bytes:
            frontend.sendall(message)
            answer = b""
            while not answer.endswith(otf.integer(-1)):
                answer += frontend.recv(1 << 16)
            return answer

        assert ask(otf.load("m")) == otf.integer(200) + otf.field("loaded model m") + otf.integer(-1)
        answers = b"".join(
            otf.field(f"request-{number}")
            + otf.field("")
            + otf.integer(200)
            + otf.field("")
            + otf.integer(0)
            + otf.field("ok")
            for number in range(2)
        )
        for body in (b"x", bytes(1 << 20)):
            batch = otf.predict(body, b"y", headers={"a": "b"})
            expected = otf.integer(200) + otf.field("Prediction success") + answers + otf.integer(-1)
            assert ask(batch) == expected
        frontend.shutdown(socket.SHUT_RDWR)
        assert worker.wait(60) == 0
        assert worker.stdout
        said = worker.stdout.read().decode().partition("Python runtime: 3\n")[2]
    received = r"Backend received inference at: \d+\n"
    metric = r"\[METRICS\]PredictionTime\.Milliseconds:0\.01\|#ModelName:m,Level:Model\|#type:GAUGE\|"
    assert re.fullmatch(rf"({received}{metric}#hostname:\S+,\d+,request-0,request-1\n){{2}}" * lines, said)
