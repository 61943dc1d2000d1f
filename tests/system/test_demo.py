"""The demo is what a newcomer runs first."""

from __future__ import annotations

import contextlib
import math
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import demo
import psutil
import pytest
from documents import README, assert_printed, shown_lines
from paths import ROOT
from waiting import wait_for

DEMO = ROOT / "scripts" / "demo.py"


@pytest.fixture
def temporary() -> Iterator[Path]:
    """Where a demo has its directory; not below pytest's, as a socket's path may be 107 bytes long."""
    with tempfile.TemporaryDirectory(prefix="ip-") as folder:
        yield Path(folder)


def left_behind(temporary: Path) -> set[str]:
    """Directories and processes that the demo left."""
    found = {str(path) for path in temporary.glob("ip-demo-*")}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            home = process.environ().get("TEMP", "")
            if home.startswith(f"{temporary}/ip-demo-") and process.status() != psutil.STATUS_ZOMBIE:
                found.add(f"process {process.pid} of {home}")
    return found


def test_a_score_that_is_not_finite_is_distinguished_from_a_right_one() -> None:
    right = {"label": "cat", "scores": {"cat": 0.5, "dog": 0.25}}
    wrong = {"label": "cat", "scores": {"cat": 0.5, "dog": math.nan}}
    model = demo.Model("m", "sample.json", [], answers=[right, wrong], expected=[right, right])
    assert model.differences() == [0.0, math.inf]


def test_commands_are_shown_so_that_a_shell_takes_paths_with_spaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "BIN", tmp_path / "a check out" / "bin")
    (tmp_path / "a place").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "a place"))
    server = demo.Server()
    demo.show_kept(server)
    shown = capsys.readouterr().out.splitlines()
    for program, arguments in (("interpool", ["status"]), ("torchserve", ["--stop"])):
        (line,) = (line for line in shown if line.endswith(" ".join(arguments)))
        *environment, command, _ = shlex.split(line)
        assert command == str(tmp_path / "a check out" / "bin" / program)
        assert [tuple(each.split("=")) for each in environment] == list(server.own_environment.items())


def test_a_server_that_does_not_stop_in_time_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop() -> None:
        raise subprocess.TimeoutExpired("torchserve --stop", 60)

    server = demo.Server()
    monkeypatch.setattr(server, "stop", stop)  # a real one takes too long on a busy machine only
    with (
        subprocess.Popen(["sleep", "60"], env={"TEMP": str(server.tmp)}) as left,
        pytest.raises(subprocess.TimeoutExpired),
    ):
        server.leave(keep_logs=False)
    assert left.returncode == -signal.SIGKILL
    assert not server.root.exists()


@pytest.mark.long
def test_demo_finds_every_answer_right_and_leaves_nothing_behind(temporary: Path) -> None:
    environment = {**os.environ, "COLUMNS": "160", "TMPDIR": str(temporary)}
    done = subprocess.run([sys.executable, DEMO], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    shown = shown_lines(README, printed_by="scripts/demo")
    assert "All answers equal the ordinary Python process's." in shown
    assert_printed(shown, done.stdout)
    assert done.stdout.count("(a shim before the pool host)") == 6
    assert done.stdout.count("curl ") == 5
    assert left_behind(temporary) == set()


@pytest.mark.long
def test_demo_that_is_interrupted_stops_what_it_started(temporary: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(temporary)}
    demo = subprocess.Popen([sys.executable, DEMO], stdout=subprocess.PIPE, text=True, env=environment)
    assert demo.stdout is not None
    while "starting TorchServe" not in demo.stdout.readline():
        assert demo.poll() is None
    time.sleep(3)  # a registration is under way
    demo.send_signal(signal.SIGINT)
    demo.communicate(timeout=120)
    assert demo.returncode == 130
    assert left_behind(temporary) == set()


@pytest.mark.long
def test_demo_keeps_its_server_if_asked_and_says_how_to_stop_it(temporary: Path) -> None:
    environment = {**os.environ, "COLUMNS": "300", "TMPDIR": str(temporary)}
    done = subprocess.run([sys.executable, DEMO, "--keep"], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.strip() for line in done.stdout.splitlines()]
    (metrics,) = [line for line in lines if line.startswith("curl -sS") and line.endswith("/metrics")]
    asked = subprocess.run(metrics, shell=True, capture_output=True, text=True)
    assert "# TYPE ts_inference_requests_total counter" in asked.stdout
    (stop,) = [line for line in lines if line.endswith("torchserve --stop")]
    subprocess.run(stop, shell=True, check=True, env=environment)
    wait_for(lambda: not any("process" in each for each in left_behind(temporary)), "the server's end")
