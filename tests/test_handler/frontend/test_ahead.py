"""The program beside `interpool serve` that has the host started as soon as there is a frontend."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import wait_for

from interpool.handler.frontend import ahead
from interpool.handler.torchserve import FRONTEND_CLASS, PID_FILE


@pytest.fixture
def frontend() -> Iterator[subprocess.Popen[bytes]]:
    """What looks like TorchServe's."""
    with subprocess.Popen(
        [sys.executable, "-c", "input()", FRONTEND_CLASS], stdin=subprocess.PIPE
    ) as process:
        yield process
        process.kill()


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("INTERPOOL_RUNTIME_DIR", str(tmp_path / "run"))
    return tmp_path


def test_the_host_waits_for_the_frontend_as_long_as_the_launcher_lives(
    temporary: Path, frontend: subprocess.Popen[bytes]
) -> None:
    found: list[int | None] = []
    waits = threading.Thread(target=lambda: found.append(ahead.await_frontend(f"/proc/{os.getpid()}")))
    waits.start()
    assert found == []
    (temporary / PID_FILE).write_text(str(frontend.pid))
    waits.join(60)
    assert found == [frontend.pid]


def test_the_host_has_the_environment_that_a_worker_has_by_default() -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": "relative:/absolute",
        "OF_THE_SERVER": "a=b",
        "TS_IPEX_ENABLE": "which only its configuration says",
    }
    with subprocess.Popen(["sleep", "60"], env=environment) as server:
        try:
            of_its_own = Path(f"/proc/{server.pid}/environ")  # Linux shows it a moment after the program
            wait_for(lambda: b"OF_THE_SERVER" in of_its_own.read_bytes(), "its start")
            found = ahead.worker_environment(server.pid)
        finally:
            server.kill()
    assert found == {
        **environment,
        "PYTHONPATH": "/absolute",
        "TS_DECODE_INPUT_REQUEST": "true",
        "TS_IPEX_ENABLE": "false",
        "TS_IPEX_GPU_ENABLE": "false",
    }


def test_a_runtime_directory_that_others_can_enter_is_refused(
    temporary: Path, frontend: subprocess.Popen[bytes], capfd: pytest.CaptureFixture[str]
) -> None:
    (temporary / "run").mkdir()
    (temporary / "run").chmod(0o777)
    (temporary / PID_FILE).write_text(str(frontend.pid))
    assert ahead.main([f"--launcher={os.getpid()}"]) == 1
    assert "could not be started with the server" in capfd.readouterr().err
