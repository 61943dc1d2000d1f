"""What a command waits for stands on standard error: a line, or something that moves on a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

CODE = """
from interpool.archiver_ext.commands.progress import progress
with progress("packing [m]") as show_step:
    show_step("building [m]")
print("done")
"""


def test_elsewhere_than_on_a_terminal_it_is_one_line_at_the_beginning() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("done\n", "interpool: packing [m]\n")


def test_a_terminal_shows_the_latest_step_and_nothing_of_it_stays() -> None:
    terminal, end = pty.openpty()
    environment = {**os.environ, "TERM": "xterm"}
    done = subprocess.run(
        [sys.executable, "-c", CODE], stdout=subprocess.PIPE, stderr=end, env=environment, check=True
    )
    os.close(end)
    shown = os.read(terminal, 65536).decode()
    os.close(terminal)
    assert done.stdout == b"done\n"
    assert "building [m]" in shown
    assert "interpool: " not in shown
    assert shown.rstrip().endswith("\x1b[2K")  # the line is erased
