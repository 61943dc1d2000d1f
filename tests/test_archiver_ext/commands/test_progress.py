"""What a command waits for stands on standard error: a line, or something that moves on a terminal."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from test_archiver_ext.conftest import Write

CODE = """
from interpool.archiver_ext.commands.progress import progress
with progress("packing [m]") as show_step:
    show_step("building [m]")
print("done")
"""

# Waits until the progress is shown.
SLOW = """
import threading
from rich.status import Status
from interpool.archiver_ext.commands.progress import progress_if_slow
shown, start = threading.Event(), Status.start
Status.start = lambda status: (start(status), shown.set())
with progress_if_slow("reading [m]"):
    shown.wait()
print("done")
"""
SHORT = """
from interpool.archiver_ext.commands import progress
progress._SHORT_S = 1000
with progress.progress_if_slow("reading [m]"):
    pass
print("done")
"""


def on_terminal(code: str) -> str:
    """What a program that prints ``done`` shows on a terminal."""
    terminal, end = pty.openpty()
    environment = {**os.environ, "TERM": "xterm"}
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print('.', file=sys.stderr)"],
        stdout=subprocess.PIPE,
        stderr=end,
        env=environment,
        check=True,
    )
    os.close(end)
    shown = os.read(terminal, 65536).decode()
    os.close(terminal)
    assert done.stdout == b"done\n"
    return shown.removesuffix(".\r\n")


def test_elsewhere_than_on_a_terminal_it_is_one_line_at_the_beginning() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("done\n", "interpool: packing [m]\n")


def test_a_terminal_shows_the_latest_step_and_nothing_of_it_stays() -> None:
    shown = on_terminal(CODE)
    assert "building [m]" in shown
    assert "interpool: " not in shown
    assert shown.rstrip().endswith("\x1b[2K")  # the line is erased


def test_a_command_that_is_short_as_a_rule_shows_on_a_terminal_that_it_waits() -> None:
    shown = on_terminal(SLOW)
    assert "reading [m]" in shown
    assert shown.rstrip().endswith("\x1b[2K")


def test_a_short_command_shows_no_progress() -> None:
    assert on_terminal(SHORT) == ""
    done = subprocess.run([sys.executable, "-c", SHORT], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("done\n", "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_a_command_leaves_no_file(
    project: Write, tmp_path: Path, number: signal.Signals
) -> None:
    source = """
        import os, time
        from pathlib import Path

        def build():
            Path(__file__).with_name("pid").write_text(str(os.getpid()))
            time.sleep(1000)
    """
    root = project({"m.py": source})
    (out := tmp_path / "out").mkdir()
    command = [Path(sys.executable).with_name("interpool"), "pack", "m:build", "-o", out / "m.ptpkg"]
    before = signal.signal(number, signal.SIG_DFL)  # a child ignores what its parent does, as under nohup
    try:
        packing = subprocess.Popen(command, cwd=root, stderr=subprocess.PIPE)
    finally:
        signal.signal(number, before)
    with packing:
        while not (root / "pid").exists() or not (root / "pid").read_text():
            assert packing.poll() is None
            time.sleep(0.1)
        assert [*out.iterdir()]
        packing.send_signal(number)
        assert packing.wait(60) == 1
    assert not [*out.iterdir()]
    with pytest.raises(ProcessLookupError):
        os.kill(int((root / "pid").read_text()), 0)
