"""Processes that run loops for a benchmark, and what several of them do at once."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from benchmarks.shared.checkout import program


class Worker:
    """A process that runs loops on demand: it answers a line ``SECONDS START ...`` with a line ``count``.

    Args:
        module: what it runs.
        arguments: the module's.
        python: the program, if not this process's.

    Attributes:
        said: what it said when it could begin.
        ended: what it said at its end.
    """

    said = ended = ""

    def __init__(self, module: str, *arguments: str, python: Path | None = None) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        environment["TOKENIZERS_PARALLELISM"] = "false"  # as many threads as are measured, and no more
        self._name = " ".join([module, *arguments[:1]])
        self._process = subprocess.Popen(
            program(module, *arguments, flags=("-W", "ignore"), python=python),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid

    def wait_ready(self) -> str:
        """Wait until it can begin; gives what it said besides. Raises RuntimeError if it cannot."""
        word, _, self.said = self._read().partition(" ")
        if word != "ready":
            raise RuntimeError(f"the process {self._name} did not start: {word} {self.said}")
        return self.said

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            raise RuntimeError(f"the process {self._name} ended with status {self._process.wait()}")
        return line

    def begin(self, seconds: float, start: float, *more: int) -> None:
        """Have it work for that long, from that time on."""
        assert self._process.stdin is not None
        print(seconds, start, *more, file=self._process.stdin, flush=True)

    def count(self) -> float:
        """What it says of the work that it began."""
        return float(self._read())

    def stop(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self.ended = self._process.stdout.read().strip()
        self._process.wait(timeout=60)

    def kill(self) -> None:
        """End it at once, if it has not ended."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


def counted(workers: list[Worker], seconds: float, *more: int) -> float:
    """What all workers, at once, say that they have done."""
    start = time.time() + 0.05
    for worker in workers:
        worker.begin(seconds, start, *more)
    return sum(worker.count() for worker in workers)
