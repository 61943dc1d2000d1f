"""An `interpool run` of one's own: a free port, an own directory, always stopped."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import urllib.request
from pathlib import Path
from typing import Self

import psutil
from local_server import INTERPOOL, Answer, ask, free_ports
from waiting import wait_for


class DirectServer:
    """Archives that are served without TorchServe.

    Args:
        archives: the command's, ``NAME=FILE`` or files.
        options: further ones of the command.
        environment: added to the process's.
    """

    overlay = True

    def __init__(
        self, *archives: str | Path, options: tuple[str, ...] = (), environment: dict[str, str] | None = None
    ) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="ip-run-"))
        (self.root / "tmp").mkdir()
        (port,) = free_ports(1)
        self.inference = f"http://127.0.0.1:{port}"
        self._command = [*INTERPOOL, "run", *map(str, archives), f"--port={port}", *options]
        self._environment = {
            **os.environ,
            "INTERPOOL_INTERPRETERS": "2",
            "INTERPOOL_RUNTIME_DIR": str(self.root / "run"),
            "OMP_NUM_THREADS": "1",
            "TMPDIR": str(self.root / "tmp"),
            **(environment or {}),
        }

    def __enter__(self) -> Self:
        with (self.root / "log").open("wb") as log:
            self._process = subprocess.Popen(
                self._command, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.process = psutil.Process(self._process.pid)
        try:
            wait_for(self._answers, lambda: f"its first answer: {self.log()}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self.root, ignore_errors=True)

    def log(self) -> str:
        return (self.root / "log").read_text(errors="replace")

    def _answers(self) -> bool:
        if self._process.poll() is not None:
            raise AssertionError(f"it ended with {self._process.returncode}: {self.log()}")
        try:
            return self.request("GET", "/ping").status == 200
        except OSError:
            return False

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> Answer:
        asked = urllib.request.Request(self.inference + path, body, headers or {}, method=method)
        return ask(asked, timeout=120)
