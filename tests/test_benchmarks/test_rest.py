"""The rest benchmark's backend that answers at once."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import otf
import pytest

from benchmarks.shared.checkout import BENCHMARKS


@pytest.mark.parametrize("lines", [False, True])
def test_the_backend_that_answers_at_once_speaks_torchserves_protocol(tmp_path: Path, lines: bool) -> None:
    address = tmp_path / "s.9000"
    command = [sys.executable, str(BENCHMARKS / "rest" / "at_once.py"), "--sock-type", "unix", "--sock-name"]
    environment = {**os.environ, "REST_LINES": "yes" if lines else ""}
    with (
        subprocess.Popen([*command, str(address)], stdout=subprocess.PIPE, env=environment) as worker,
        socket.socket(socket.AF_UNIX) as frontend,
    ):
        assert worker.stdout
        while worker.stdout.readline() != b"Python runtime: 3\n":  # it listens by then
            assert worker.poll() is None
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
        said = worker.stdout.read().decode()
    received = r"Backend received inference at: \d+( \[requests request-, request-\])?\n"
    metric = r"\[METRICS\]PredictionTime\.Milliseconds:0\.01\|#ModelName:m,Level:Model\|#type:GAUGE\|"
    assert re.fullmatch(rf"({received}{metric}#hostname:\S+,\d+,request-0,request-1\n){{2}}" * lines, said)
