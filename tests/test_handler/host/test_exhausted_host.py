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
from click.testing import CliRunner
from shims import Shim, new_model
from waiting import wait_for

from interpool.handler.cli import main
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
        return str(json.loads(control.ask_status(self.runtime))["trouble"])

    def states(self) -> list[str]:
        return [worker["state"] for worker in json.loads(control.ask_status(self.runtime))["workers"]]

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
    """Workers until one is refused, to all of which TorchServe has connected; and what that one was told."""
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


def test_workers_for_whom_there_are_no_descriptors_are_refused_with_what_to_do(
    host: _Host, tmp_path: Path
) -> None:
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


def test_a_host_without_a_descriptor_says_so_to_all_who_come_and_goes_on_when_there_is_one(
    host: _Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERPOOL_RUNTIME_DIR", str(host.base))
    model = new_model(tmp_path / "model")
    (worker,), _ = _fill(host, model, 1)
    wait_for(lambda: host.states() == ["connected"], "the worker to be served")
    wait_for(lambda: "first interpreter is ready" in host.log.read_text(), "the interpreter")
    takers = [shim.connect_control(str(host.runtime)) for _ in range(LIMIT)]  # as a model that opens files
    late = Shim(host.runtime, f"unix:{tmp_path}/.late", model)
    said = late.answer()
    late.close()
    assert said.startswith(f"refused\0the pool host has 0 of {LIMIT} file descriptors left")
    asked = CliRunner().invoke(main, ["status"])
    assert asked.exit_code == 1
    assert "a pool host is running and does not answer" in asked.stderr
    assert "raise the limit (`ulimit -n`" in asked.stderr
    checked = CliRunner().invoke(main, ["status", "--check", "m"])
    assert (checked.exit_code, checked.stderr) == (1, asked.stderr)
    with pytest.raises(shim.Refused, match="raise the limit"):
        _register_as_a_shim(host, model)
    for taker in takers:
        taker.close()
    wait_for(lambda: CliRunner().invoke(main, ["status"]).exit_code == 0, "an answer")
    wait_for(lambda: host.trouble() == "", "room again")
    assert host.states() == ["connected"]
    assert "Traceback" not in host.log.read_text()
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


def test_a_soft_limit_is_raised_as_far_as_it_may() -> None:
    source = (
        "import resource\n"
        "from interpool.handler.host.limits import Limits\n"
        "of = resource.RLIMIT_NOFILE\n"
        "resource.setrlimit(of, (100, 100))\n"
        "limits = Limits()\n"
        "resource.setrlimit(of, (10, 50))\n"
        "limits.restore()\n"
        "print(resource.getrlimit(of), limits.lowered)\n"
    )
    done = subprocess.run(
        [*_powerless(), sys.executable, "-c", source], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("(50, 50) RLIMIT_NOFILE (now 10 of 50): a model has lowered it")


def _powerless() -> list[str]:
    """What starts a program that may not raise hard limits."""
    return ["setpriv", "--bounding-set=-sys_resource", "--inh-caps=-all"] if os.getuid() == 0 else []


def test_a_host_that_may_not_raise_a_limit_again_leaves_at_once_with_that_reason(tmp_path: Path) -> None:
    """The next one has TorchServe's."""
    (tmp_path / "run").mkdir(mode=0o700)
    host = _Host(tmp_path / "run", *_powerless())
    try:
        wait_for(lambda: "first interpreter is ready" in host.log.read_text(), "the interpreter")
        host.limit(1, 1)
        late = shim.connect_control(str(host.runtime))
        assert host.process.wait(60) == 0
        late.close()
    finally:
        host.close()
    text = host.log.read_text()
    assert "the pool host cannot go on: RLIMIT_NOFILE (now 1 of 1): a model has lowered it" in text
    assert "this process may not raise it again" in text


def _register_as_a_shim(host: _Host, model: Path) -> None:
    fields = {"protocol": shim.PROTOCOL, "pid": "1", "address": "unix:/s", "model_dir": str(model)}
    connection = shim.connect_control(str(host.runtime))
    try:
        shim.register(connection, {**fields, "metrics_config": "", "arguments": ""})
    finally:
        connection.close()


def test_a_manifest_that_cannot_be_read_says_nothing_of_whose_model_it_is(tmp_path: Path) -> None:
    """A worker that lacked a descriptor for it was handed to TorchServe's own workers, signatures or not."""
    model = new_model(tmp_path / "model")
    source = (
        "import resource, sys\n"
        "from interpool.handler.frontend import shim\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))\n"
        "try: print(shim.is_hermetic(sys.argv[1]))\n"
        "except shim.Refused as reason: print(reason)\n"
    )
    done = subprocess.run([sys.executable, "-c", source, str(model)], capture_output=True, text=True)
    assert done.stdout.startswith(f"{model}/MAR-INF/MANIFEST.json cannot be read: Too many open files"), done
    assert not shim.is_hermetic(str(tmp_path / "none"))
