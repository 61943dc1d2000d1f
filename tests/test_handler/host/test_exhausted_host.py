"""A host that runs out of something says so, refuses what it cannot serve, and serves the others."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from shims import Shim, new_model
from waiting import wait_for

from interpool.handler.frontend import shim
from interpool.handler.host import control

LIMIT = 128


class _Host:
    """A pool host in a process of its own, with one interpreter.

    Args:
        base: of its runtime directory.
        launcher: starts it.
    """

    def __init__(self, base: Path, *launcher: str) -> None:
        self.base = base
        self.frontend = subprocess.Popen(["sleep", "1000"])
        self.runtime = base / shim.instance_key(self.frontend.pid, "default")
        shim.make_private(str(self.runtime))
        self.log = base.parent / "host.log"
        command = [sys.executable, "-P", "-m", "interpool.handler.host.start", "--pool=default"]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*launcher, "prlimit", f"--nofile={LIMIT}:{LIMIT}", *command, *self._arguments()],
                env={**os.environ, "INTERPOOL_INTERPRETERS": "1"},
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert self.process.stdout is not None
        with self.process.stdout as said:
            assert said.readline() == b"listening\n"

    def _arguments(self) -> list[str]:
        return [f"--frontend={self.frontend.pid}", f"--runtime-dir={self.runtime}"]

    def limit(self, soft: int, hard: int = LIMIT) -> None:
        """What a model does by resource.setrlimit."""
        resource.prlimit(self.process.pid, resource.RLIMIT_NOFILE, (soft, hard))

    def trouble(self) -> str:
        return str(json.loads(control.ask(self.runtime))["trouble"])

    def states(self) -> list[str]:
        return [worker["state"] for worker in json.loads(control.ask(self.runtime))["workers"]]

    def close(self) -> None:
        self.frontend.kill()
        self.frontend.wait()
        self.process.wait(60)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[_Host]:
    (tmp_path / "run").mkdir(mode=0o700)
    running = _Host(tmp_path / "run")
    try:
        yield running
    finally:
        running.close()
    assert not running.runtime.exists()


def _fill(host: _Host, model: Path, most: int) -> tuple[list[Shim], str]:
    """Workers until one is refused, to all of which TorchServe has connected; and that one's answer."""
    workers: list[Shim] = []
    while len(workers) < most:
        worker = Shim(host.runtime, f"unix:{model.parent}/.s{len(workers)}", model)
        answer = worker.answer()
        if answer != "ready":
            worker.close()
            return workers, answer
        worker.connect()
        workers.append(worker)
    return workers, ""


def test_workers_are_refused_with_what_to_do_if_there_are_no_descriptors(host: _Host, tmp_path: Path) -> None:
    model = new_model(tmp_path / "model")
    workers, said = _fill(host, model, 60)
    assert len(workers) > 5
    assert said.startswith("refused\0the pool host has ")
    assert f"of {LIMIT} file descriptors left" in said
    assert "raise the limit (`ulimit -n`" in said
    assert "no other worker is taken" in host.trouble()
    wait_for(lambda: host.states() == ["connected"] * len(workers), "the others to be served")
    assert host.log.stat().st_size < 20_000
    workers.pop().close()
    wait_for(lambda: host.trouble() == "", "room for another one")
    workers.append(Shim(host.runtime, f"unix:{tmp_path}/.again", model))
    assert workers[-1].answer() == "ready"
    for worker in workers:
        worker.close()


def test_a_limit_that_a_model_has_lowered_is_raised_again_and_named(host: _Host, tmp_path: Path) -> None:
    model = new_model(tmp_path / "model")
    wait_for(lambda: "first interpreter is ready" in host.log.read_text(), "the interpreter")
    host.limit(1)  # less than it has open
    workers, said = _fill(host, model, 2)
    assert (len(workers), said) == (2, "")
    said = "RLIMIT_NOFILE (now 1 of 128): a model has lowered it (resource.setrlimit), for all models of its"
    assert f"{said} pool. It is raised again" in host.log.read_text()
    for worker in workers:
        worker.close()
