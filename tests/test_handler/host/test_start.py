"""The pool host's process, until it listens."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path


def test_little_is_imported_before_the_first_interpreter_starts() -> None:
    """Every millisecond there is one of the first model's first answer."""
    source = "import sys, interpool.handler.host.start; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert loaded.isdisjoint(
        {"pydantic", "yaml", "torch", "numpy", "psutil", "click", "shutil", "json", "asyncio"}
    )
    assert "interpool.handler.config" not in loaded
    assert len(loaded) < 130


def test_a_host_that_is_started_beside_another_one_leaves_it_alone(tmp_path: Path) -> None:
    """It was started as its predecessor died, and a shim was faster."""
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener,
        (tmp_path / "lock").open("w") as lock,
    ):
        listener.bind(str(tmp_path / "control"))
        listener.listen(1)
        command = [sys.executable, "-m", "interpool.handler.host.start", f"--frontend={os.getpid()}"]
        command += [f"--runtime-dir={tmp_path}", "--pool=default", f"--lock={lock.fileno()}"]
        done = subprocess.run(command, pass_fds=[lock.fileno()], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        listener.accept()[0].close()  # it has looked
