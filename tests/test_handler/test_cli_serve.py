"""What ``interpool serve`` leaves when its server has ended, with a program in place of Java."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = "from interpool.handler.cli import main; main()"


def _serve(directory: Path, *arguments: str, java: str = "exit 0") -> subprocess.CompletedProcess[str]:
    """Run the command in a directory of its own, which is its TEMP, too."""
    program = directory / "java-home" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{java}\n")
    program.chmod(0o755)
    (directory / "store").mkdir()
    environment = {
        **os.environ,
        "JAVA_HOME": str(directory / "java-home"),
        "INTERPOOL_RUNTIME_DIR": str(directory / "runtime"),
        "INTERPOOL_START_AHEAD": "0",
        "TEMP": str(directory),
        "TMPDIR": str(directory),
    }
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, "serve", *arguments],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
    )


def _homes(directory: Path) -> list[Path]:
    return list(directory.glob("interpool-server-*"))


def test_a_server_in_the_foreground_leaves_no_home(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    look = f'ls "$TS_MODEL_SERVER_HOME" > {seen}; ls -l /proc/self/fd/0 >> {seen}'
    done = _serve(tmp_path, "--foreground", "--model-store", "store", java=look)
    assert done.returncode == 0, done.stderr
    assert "interpool_shim.py" in seen.read_text()
    assert "/held\n" in seen.read_text()
    assert _homes(tmp_path) == []


@pytest.mark.parametrize("flags", [[], ["--foreground"]])
def test_a_start_that_torchserve_refuses_leaves_no_home(tmp_path: Path, flags: list[str]) -> None:
    done = _serve(tmp_path, *flags, "--model-store", "none")
    assert (done.returncode, "--model-store directory not found: none" in done.stdout) == (1, True)
    assert _homes(tmp_path) == []


def test_a_server_that_ends_before_it_serves_leaves_no_home(tmp_path: Path) -> None:
    done = _serve(tmp_path, "--model-store", "store")
    assert (done.returncode, "TorchServe ended before it served" in done.stderr) == (5, True)
    assert _homes(tmp_path) == []


def test_a_direct_address_that_is_wrong_does_not_keep_the_server_from_being_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERPOOL_DIRECT_ADDRESS", "nowhere")
    done = _serve(tmp_path, "--stop")
    assert (done.returncode, done.stdout) == (0, "TorchServe is not currently running.\n")
