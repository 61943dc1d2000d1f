"""The control plane with a pool that answers nothing: its races, without TorchServe."""

from __future__ import annotations

import errno
import json
import os
import selectors
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from local_server import free_ports
from shims import Shim, connect, manifest_of, new_model
from waiting import wait_for

import interpool.native
from interpool.handler import interpool_handler
from interpool.handler.config import own_pool
from interpool.handler.failed_load import ask_for_own_interpreters
from interpool.handler.frontend import shim
from interpool.handler.frontend.held import unheld
from interpool.handler.host import control, pool_host, survival
from interpool.handler.host.call_watch import CallWatch
from interpool.handler.host.pool import Pool
from interpool.handler.host.pool_host import PoolHost
from interpool.handler.worker_reports import Report
from interpool.handler.worker_token import WorkerToken
from interpool.native.errors import LeaseTimeoutError


class _Pool:
    """Keeps what it is given; a connection ends when told to."""

    connections: list[dict[str, Any]]
    forgotten: list[str]
    told: list[str]
    isolated: list[str]
    retired: int = 0
    sizes: list[tuple[int, int]]
    failure: Exception | None = None
    lost: bool = False  # all of its interpreters, and it cannot start another one

    def __init__(self, count: int, *, preload: list[str]) -> None:
        if _Pool.failure is not None:
            raise _Pool.failure
        assert preload == ["interpool.handler.backend.service"]
        self.min_size = self.max_size = self._count = count
        _Pool.sizes = []
        _Pool.connections = []
        _Pool.forgotten = []
        _Pool.told = []
        _Pool.isolated = []

    def __len__(self) -> int:
        return 0 if _Pool.lost else self._count

    def resize(self, min_size: int, max_size: int) -> None:
        _Pool.sizes.append((min_size, max_size))
        self.min_size = min_size  # and no more of them become ready
        self.max_size = max_size

    def forget(self, affinity: str, interpreter: int | None = None) -> None:
        _Pool.forgotten.append(affinity)

    def isolate(self, affinity: str) -> None:
        _Pool.isolated.append(affinity)

    def tell_all(self, module: str, function: str, argument: str) -> None:
        assert (module, function) == ("interpool.handler.backend.service", "end_states")
        _Pool.told.append(argument)

    def all_instances(self) -> list[Any]:
        return []

    def acquire_session(self, timeout: float | None = None) -> Any:
        raise LeaseTimeoutError

    def dump_stacks(self) -> str:
        return "interpreter 1: free\n" * 10_000

    def stats(self) -> dict[str, object]:
        failure = "no memory" if _Pool.lost else ""
        sizes = {"max_size": self.max_size, "waiting": 0, "growing": False, "failure": failure}
        retired = {"state": "retired", "affinities": [], "idle": [], "owner": None, "seconds": None}
        interpreters = [{"interpreter": number, **retired} for number in range(_Pool.retired)]
        return {"interpreters": interpreters, "models": {}, **sizes}

    def serve(self, fd: int, **options: Any) -> Any:
        entry = {"socket": socket.socket(fileno=fd), "closed": False, **options}
        _Pool.connections.append(entry)

        class Connection:
            where = ""
            importing = False

            @property
            def running(self) -> float | None:
                running: float | None = entry.get("running")
                began = entry.get("began")
                return time.monotonic() - began if began is not None else running

            def interrupt(self) -> bool:
                entry["interrupted"] = entry.get("interrupted", 0) + 1
                return True

            def give_up(self) -> int:
                entry["running"] = None
                return 1

            def close(self) -> None:
                entry["closed"] = True

        return Connection()

    @classmethod
    def end(cls, index: int) -> None:
        entry = cls.connections[index]
        entry["socket"].close()
        os.eventfd_write(entry["done_fd"], 1)


def _configure(model: Path, text: str) -> None:
    """Give it a configuration file."""
    (model / "config.yaml").write_text(text)
    (model / "MAR-INF" / "MANIFEST.json").write_text(manifest_of(configFile="config.yaml"))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return new_model(tmp_path / "model")


@pytest.fixture
def frontend() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield process
        process.kill()


@contextmanager
def _host(
    directory: Path, frontend: subprocess.Popen[bytes], *, ahead: bool = False, is_last: bool = True
) -> Iterator[Path]:
    """A host that runs in a thread; gives its runtime directory.

    ``is_last``: it leaves as its server ends; else it is to leave by itself, and its server lives.
    """
    directory /= shim.instance_key(frontend.pid, "default")
    shim.make_private(str(directory))
    pool = Pool()
    pool.start()
    host = PoolHost(directory, "default", frontend.pid, pool, ahead=ahead)
    thread = threading.Thread(target=host.run)
    thread.start()
    try:
        yield directory
    finally:
        if is_last:
            frontend.kill()
        thread.join(60)
    assert not thread.is_alive()
    assert directory.exists() != is_last


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """What hosts in this process start."""
    monkeypatch.setattr(interpool.native, "InterpreterManager", _Pool, raising=False)
    monkeypatch.setattr(_Pool, "failure", None)
    monkeypatch.setattr(_Pool, "lost", False)
    monkeypatch.setenv("INTERPOOL_INTERPRETERS", "2")


@pytest.fixture
def runtime(pool: None, tmp_path: Path, frontend: subprocess.Popen[bytes]) -> Iterator[Path]:
    with _host(tmp_path, frontend) as directory:
        yield directory


def _states(runtime: Path) -> list[str]:
    return [worker["state"] for worker in json.loads(control.ask_status(runtime))["workers"]]


def test_a_worker_listens_serves_and_ends(runtime: Path, model: Path, tmp_path: Path) -> None:
    path = tmp_path / ".ts.sock.9000"
    worker = Shim(runtime, f"unix:{path}", model)
    assert worker.answer() == "ready"
    assert _states(runtime) == ["listening"]
    stream = connect(path)
    wait_for(lambda: _states(runtime) == ["connected"], "the connection")
    assert _Pool.connections[0]["affinity"] == str(model)
    assert _Pool.connections[0]["module"] == "interpool.handler.backend.service"
    _Pool.end(0)
    assert worker.answer() == "bye"
    assert worker.answer() == ""
    wait_for(worker.log_is_closed, "the end of its log")
    assert not path.exists()
    assert _states(runtime) == []
    stream.close()
    worker.close()


def test_stacks_are_answered_whole_while_the_host_goes_on(runtime: Path, model: Path, tmp_path: Path) -> None:
    worker = Shim(runtime, f"unix:{tmp_path}/.s", model)
    assert worker.answer() == "ready"
    assert control.ask_stacks(runtime).decode() == "interpreter 1: free\n" * 10_000
    assert _states(runtime) == ["listening"]
    worker.close()
    wait_for(lambda: _states(runtime) == [], "the worker's end")


def test_a_killed_shims_connection_is_closed_and_its_log_at_once(
    runtime: Path, model: Path, tmp_path: Path
) -> None:
    path = tmp_path / ".ts.sock.9000"
    worker = Shim(runtime, f"unix:{path}", model)
    assert worker.answer() == "ready"
    stream = connect(path)
    wait_for(lambda: _states(runtime) == ["connected"], "the connection")
    worker.peer.close()
    wait_for(lambda: _Pool.connections[0]["closed"], "its connection to be closed")
    # The call still runs: the log ends for TorchServe, the descriptor's number is not free.
    wait_for(worker.log_is_closed, "the end of its log")
    assert _states(runtime) == ["ending"]
    _Pool.end(0)
    wait_for(lambda: _states(runtime) == [], "the worker's end")
    stream.close()
    worker.close()


def test_a_name_that_is_used_again_belongs_to_the_new_worker(
    runtime: Path, model: Path, tmp_path: Path
) -> None:
    """TorchServe reuses a killed worker's socket name before its end is seen here."""
    path = tmp_path / ".ts.sock.9000"
    old = Shim(runtime, f"unix:{path}", model)
    assert old.answer() == "ready"
    stream = connect(path)
    wait_for(lambda: _states(runtime) == ["connected"], "the connection")
    path.unlink()
    new = Shim(runtime, f"unix:{path}", model)
    assert new.answer() == "ready"
    assert sorted(_states(runtime)) == ["ending", "listening"]
    _Pool.end(0)
    wait_for(lambda: _states(runtime) == ["listening"], "the old worker's end")
    assert path.exists()
    second = connect(path)
    wait_for(lambda: _states(runtime) == ["connected"], "the connection")
    for thing in (stream, second, old, new):
        thing.close()
    wait_for(lambda: _Pool.connections[1]["closed"], "its connection to be closed")
    _Pool.end(1)


@pytest.fixture
def quick_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interpool.handler.host.pool_host.TICK_S", 0.05)
    monkeypatch.setattr("interpool.handler.host.pool_host.FILLING_TICK_S", 0.05)


def _serve(runtime: Path, path: Path, model: Path, **fields: str) -> tuple[Shim, socket.socket, WorkerToken]:
    """A worker that TorchServe has connected to, and what the interpreters are told of it."""
    known = len(getattr(_Pool, "connections", []))
    worker = Shim(runtime, f"unix:{path}", model, **fields)
    assert worker.answer() == "ready"
    stream = connect(path)
    wait_for(lambda: len(_Pool.connections) > known, "the connection")
    return worker, stream, WorkerToken.of_text(_Pool.connections[-1]["worker"])


@pytest.mark.usefixtures("quick_ticks")
def test_a_models_state_ends_with_its_last_worker(runtime: Path, model: Path, tmp_path: Path) -> None:
    _Pool.connections = []
    first, stream, token = _serve(runtime, tmp_path / ".s0", model)
    second, other_stream, other = _serve(runtime, tmp_path / ".s1", model)
    assert token.state == other.state
    first.peer.close()
    wait_for(lambda: _Pool.connections[0]["closed"], "the first worker's end")
    third, third_stream, third_token = _serve(runtime, tmp_path / ".s2", model)
    assert third_token.state == token.state  # the second lives
    second.peer.close()
    third.peer.close()
    wait_for(lambda: _Pool.told == [str(token.state)], "the interpreters to be told")
    last, last_stream, last_token = _serve(runtime, tmp_path / ".s3", model)
    assert last_token.state > token.state
    for index in range(4):
        _Pool.end(index)
    for thing in (stream, other_stream, third_stream, last_stream, first, second, third, last):
        thing.close()


@pytest.mark.usefixtures("quick_ticks")
def test_a_worker_with_a_state_of_its_own_shares_it_with_none_and_stays_in_one_interpreter(
    runtime: Path, model: Path, tmp_path: Path
) -> None:
    _Pool.connections = []
    _configure(model, "interpool:\n  state: worker\n")
    first, stream, token = _serve(runtime, tmp_path / ".s0", model)
    second, other_stream, other = _serve(runtime, tmp_path / ".s1", model)
    assert token.own_state
    assert token.state != other.state
    assert [each["pinned"] for each in _Pool.connections] == [True, True]
    first.peer.close()
    wait_for(lambda: _Pool.told == [str(token.state)], "the interpreters to be told")
    for index in range(2):
        _Pool.end(index)
    for thing in (stream, other_stream, first, second):
        thing.close()


def test_a_model_that_is_gone_is_refused_and_ends_its_workers(
    runtime: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / ".ts.sock.9000"
    monkeypatch.setattr("interpool.handler.host.pool_host.MODEL_CHECK_S", 0.1)
    worker = Shim(runtime, f"unix:{path}", model)
    assert worker.answer() == "ready"
    model.rename(tmp_path / "moved")
    assert worker.answer() == "bye"
    wait_for(lambda: _Pool.forgotten == [str(model)], "the model to be forgotten")
    late = Shim(runtime, f"unix:{path}", model)
    assert "is gone: was it unregistered?" in late.answer()
    worker.close()
    late.close()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"protocol": "0"}, "different versions of interpool"),
        ({"pid": "x"}, "cannot parse"),
        ({"address": "unix:/nowhere/sock"}, "cannot listen on"),
    ],
)
def test_what_cannot_be_served_is_refused_with_the_reason(
    runtime: Path, model: Path, tmp_path: Path, fields: dict[str, str], words: str
) -> None:
    worker = Shim(runtime, f"unix:{tmp_path}/.s", model, **({} if "address" in fields else fields))
    if "address" in fields:
        worker.close()
        worker = Shim(runtime, fields["address"], model)
    assert words in worker.answer()
    worker.close()
    wait_for(lambda: _states(runtime) == [], "the worker's end")


@pytest.mark.parametrize("handler", ["interpool_handler.py", "handler.py"])
def test_a_model_with_a_name_that_leads_out_is_loaded_nowhere_and_its_load_says_why(
    runtime: Path, model: Path, tmp_path: Path, handler: str
) -> None:
    (tmp_path / "secret.yaml").write_text("interpool: {pool: stolen}")
    manifest = manifest_of(handler=handler, configFile="../secret.yaml")
    (model / "MAR-INF" / "MANIFEST.json").write_text(manifest)
    _Pool.connections = []
    worker, stream, token = _serve(runtime, tmp_path / ".s", model)
    assert "its configFile '../secret.yaml' leads out of the model's directory" in token.refusal
    assert not token.ordinary
    _Pool.end(0)
    wait_for(lambda: _states(runtime) == [], "the worker's end")
    stream.close()
    worker.close()


def test_a_model_has_the_name_that_it_is_registered_by(runtime: Path, model: Path, tmp_path: Path) -> None:
    (model / "MAR-INF" / "MANIFEST.json").write_text(manifest_of(modelVersion="2.0"))
    _Pool.connections = []
    worker, stream, token = _serve(runtime, tmp_path / ".s", model)

    def names() -> set[str]:
        status = json.loads(control.ask_status(runtime))
        return {each["model"] for each in (*status["workers"], status["served"][str(model)])}

    assert names() == {"m/2.0"}
    Report("loading", os.getpid(), 1, model="alias1").send(token.reports)
    wait_for(lambda: names() == {"alias1/2.0"}, "the name")
    next_worker = Shim(runtime, f"unix:{tmp_path}/.s1", model, pid=str(os.getpid() + 1))
    assert next_worker.answer() == "ready"
    assert names() == {"alias1/2.0"}
    _Pool.end(0)
    next_worker.peer.close()
    wait_for(lambda: _states(runtime) == [], "the workers' end")
    for each in (stream, worker, next_worker):
        each.close()


@pytest.mark.parametrize("ahead", [False, True])
def test_a_pool_that_does_not_start_tells_every_waiting_worker(
    pool: None,
    frontend: subprocess.Popen[bytes],
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ahead: bool,
) -> None:
    monkeypatch.setattr(_Pool, "failure", OSError("no room for copies"))
    with _host(tmp_path, frontend, ahead=ahead) as runtime:
        workers = [Shim(runtime, f"unix:{tmp_path}/.s{index}", model) for index in range(2)]
        for worker in workers:
            assert "no room for copies" in worker.answer()
        late = Shim(runtime, f"unix:{tmp_path}/.s2", model)
        assert "no room for copies" in late.answer()
        for worker in (*workers, late):
            worker.close()
        wait_for(lambda: not runtime.exists(), "the host's end")


def test_a_worker_is_served_before_all_interpreters_are_ready(
    runtime: Path, model: Path, tmp_path: Path
) -> None:
    worker = Shim(runtime, f"unix:{tmp_path}/.s", model)
    assert worker.answer() == "ready"
    assert _Pool.sizes == [(2, 2)]  # of which this pool never has more than one
    worker.close()
    wait_for(lambda: _states(runtime) == [], "the worker's end")


def test_a_host_that_was_started_ahead_has_its_size_before_a_worker_comes(
    pool: None, frontend: subprocess.Popen[bytes], model: Path, tmp_path: Path
) -> None:
    with _host(tmp_path, frontend, ahead=True) as runtime:
        wait_for(lambda: _Pool.sizes == [(2, 2)], "the size that the environment names")
        _configure(model, "interpool: {interpreters: 3}\n")
        workers = []
        for index in range(2):
            workers.append(Shim(runtime, f"unix:{tmp_path}/.s{index}", model))
            assert workers[-1].answer() == "ready"
        assert _Pool.sizes == [(2, 2), (3, 3)]  # the first model decides
        for worker in workers:
            worker.close()
        wait_for(lambda: _states(runtime) == [], "the workers' end")


def test_a_host_that_was_started_ahead_waits_for_its_first_worker(
    pool: None,
    quick_ticks: None,
    frontend: subprocess.Popen[bytes],
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("INTERPOOL_IDLE_EXIT_S", "0.2")
    with _host(tmp_path, frontend, ahead=True) as runtime:
        wait_for(lambda: json.loads(control.ask_status(runtime))["uptime_s"] > 0.5, "more than the idle time")
        worker = Shim(runtime, f"unix:{tmp_path}/.s", model)
        assert worker.answer() == "ready"
        worker.close()
        wait_for(lambda: not runtime.exists(), "the host's end, as nobody needs it any more")


@pytest.mark.usefixtures("pool")
@pytest.mark.parametrize("other", [{"OF_THE_SERVER": "1"}, {"TS_DECODE_INPUT_REQUEST": "false"}])
def test_a_host_that_was_started_ahead_leaves_if_workers_have_another_environment(
    frontend: subprocess.Popen[bytes], model: Path, tmp_path: Path, other: dict[str, str]
) -> None:
    """TorchServe's configuration says what it adds to that and what it leaves out."""
    with subprocess.Popen(["sleep", "1000"], env={**os.environ, **other}) as process:
        try:
            with _host(tmp_path, frontend, ahead=True) as runtime:
                worker = Shim(runtime, f"unix:{tmp_path}/.s", model, pid=str(process.pid))
                assert worker.answer() == ""  # after which a shim tries again
                worker.close()
                wait_for(lambda: not runtime.exists(), "the host's end, with its frontend alive")
        finally:
            process.kill()


@pytest.mark.usefixtures("pool", "quick_ticks")
def test_a_host_that_is_asked_how_it_is_ends_when_nobody_needs_it(
    frontend: subprocess.Popen[bytes], model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERPOOL_IDLE_EXIT_S", "0.2")
    with _host(tmp_path, frontend) as runtime:
        worker = Shim(runtime, f"unix:{tmp_path}/.s", model)
        assert worker.answer() == "ready"
        worker.close()

        def has_ended() -> bool:
            try:
                control.ask_status(runtime)
            except OSError:
                return True
            return False

        wait_for(has_ended, "the host's end, as nobody needs it any more", pause=0.01)


@pytest.mark.usefixtures("quick_ticks")
def test_a_pool_that_has_lost_all_interpreters_ends_whoever_is_connected(
    runtime: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _Pool.connections = []
    worker, stream, _ = _serve(runtime, tmp_path / ".s", model)
    monkeypatch.setattr(_Pool, "lost", True)
    assert worker.answer() == "bye"
    _Pool.end(0)
    wait_for(lambda: not runtime.exists(), "the host's end")
    stream.close()
    worker.close()


@pytest.mark.usefixtures("quick_ticks")
def test_a_host_that_has_been_short_of_memory_for_a_moment_goes_on(
    runtime: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Shim(runtime, f"unix:{tmp_path}/.s", model)
    assert worker.answer() == "ready"
    shortages = [MemoryError()]
    stats = _Pool.stats

    def stats_if_there_is_memory(pool: _Pool) -> dict[str, object]:
        if shortages:
            raise shortages.pop()
        return stats(pool)

    monkeypatch.setattr(_Pool, "stats", stats_if_there_is_memory)
    wait_for(lambda: not shortages, "the host to look at its pool")
    assert _states(runtime) == ["listening"]
    worker.close()
    wait_for(lambda: _states(runtime) == [], "the worker's end")


@pytest.mark.usefixtures("pool")
def test_a_host_whose_turns_all_fail_makes_room_for_the_next_one(
    frontend: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survival, "MOST_FAILED_TURNS", 3)
    with _host(tmp_path / "base", frontend) as runtime:

        def fail(_self: object) -> None:
            raise OSError("no descriptors are left")

        monkeypatch.setattr(pool_host.PoolHost, "_tick", fail)
        wait_for(lambda: not runtime.exists(), "the host to leave")


@pytest.mark.parametrize(
    ("of_worker", "is_like"),
    [
        ({"A": "1", "PWD": "/models"}, True),
        ({"A": "1", "BASH_FUNC_ml%%": "() { :; }", "app.name": "x"}, True),
        ({"A": "2"}, False),
        ({"A": "1", "TS_DECODE_INPUT_REQUEST": "false"}, False),
    ],
)
def test_environments_are_compared_by_what_a_launchers_shell_passes_on(
    monkeypatch: pytest.MonkeyPatch, of_worker: dict[str, str], is_like: bool
) -> None:
    environments = {os.getpid(): {"A": "1", "_": "/usr/bin/java", "x-y": "z"}, 7: of_worker}
    monkeypatch.setattr(shim, "started_with", environments.__getitem__)
    assert pool_host._was_started_like(7) == is_like


@pytest.mark.usefixtures("pool")
def test_a_hosts_files_stay_young_for_who_removes_old_ones(
    frontend: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_host, "KEEP_S", 0.0)
    with _host(tmp_path / "base", frontend) as runtime:
        files = [runtime, *runtime.iterdir()]
        assert "control" in {file.name for file in files}
        for file in files:
            os.utime(file, (0, 0), follow_symlinks=False)
        wait_for(lambda: all(file.lstat().st_mtime > 0 for file in files), "the host to look after its files")


@pytest.mark.usefixtures("pool")
def test_a_host_whose_directory_cannot_be_made_again_tells_its_workers_that_it_ends(
    frontend: subprocess.Popen[bytes], model: Path, tmp_path: Path
) -> None:
    base = tmp_path / "base"
    with _host(base, frontend) as runtime:
        worker = Shim(runtime, f"unix:{tmp_path}/.s", model)
        assert worker.answer() == "ready"
        shutil.rmtree(base)
        base.touch()  # in the way of everybody, root as well
        frontend.kill()
        assert worker.answer() == "bye"
        worker.close()


@pytest.mark.usefixtures("quick_ticks")
def test_a_load_does_not_count_against_the_limit_of_a_call(
    runtime: Path, model: Path, tmp_path: Path
) -> None:
    _Pool.connections = []
    _configure(model, "interpool: {call_limit: 0.2}\n")
    worker, stream, token = _serve(runtime, tmp_path / ".s", model)
    began = time.monotonic()
    Report("loading", token.pid, 1).send(token.reports)
    _states(runtime)  # reports are read by then
    call = _Pool.connections[0]
    call["began"] = began
    wait_for(lambda: time.monotonic() - began > 0.6, "thrice the limit")
    _states(runtime)
    assert "interrupted" not in call
    Report("loaded", token.pid, 1).send(token.reports)
    wait_for(lambda: "interrupted" in call, "the call to be interrupted, as it goes on after the load")
    call["began"] = None
    _Pool.end(0)
    stream.close()
    worker.close()


def test_settings_that_pyyaml_stumbles_over_stop_the_load_and_not_the_worker(
    runtime: Path, model: Path, tmp_path: Path
) -> None:
    _Pool.connections = []
    _configure(model, "x: !!bool maybe\n")
    worker, stream, token = _serve(runtime, tmp_path / ".s", model)
    assert token.refusal.startswith(f"{model}/config.yaml cannot be read: is not YAML")
    _Pool.end(0)
    stream.close()
    worker.close()


def test_a_worker_that_cannot_be_taken_for_whatever_reason_is_answered_and_its_log_ends(
    runtime: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object) -> None:
        raise KeyError("maybe")

    monkeypatch.setattr("interpool.handler.host.pool_host.Worker", fail)
    worker = Shim(runtime, f"unix:{tmp_path}/.s", model)
    assert worker.answer() == "refused\0the pool host could not take this worker: KeyError('maybe')"
    wait_for(worker.log_is_closed, "the end of its log")
    assert _states(runtime) == []
    worker.close()


def test_a_worker_over_tcp_is_served_too(runtime: Path, model: Path) -> None:
    (port,) = free_ports(1)
    worker = Shim(runtime, f"tcp:127.0.0.1:{port}", model)
    assert worker.answer() == "ready"
    stream = socket.create_connection(("127.0.0.1", port))
    wait_for(lambda: _states(runtime) == ["connected"], "the connection")
    _Pool.end(0)
    assert worker.answer() == "bye"
    stream.close()
    worker.close()


def test_a_host_holds_its_directory_and_lets_go_of_it_at_its_end(runtime: Path) -> None:
    with unheld(runtime) as is_free:
        assert not is_free


def test_a_host_without_a_frontend_does_not_start(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "interpool.handler.host.start",
            f"--frontend={2**22 + 1}",
            f"--runtime-dir={tmp_path}",
            "--pool=p",
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "listening" not in done.stdout


@pytest.fixture
def no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls that are interrupted are given up at the next look."""
    monkeypatch.setattr("interpool.handler.host.pool_host.CallWatch", lambda: CallWatch(grace_s=0.0))


def _lose_a_call(runtime: Path, path: Path, model: Path) -> None:
    """A worker ends whose call does not come back."""
    worker, stream, _ = _serve(runtime, path, model)
    _Pool.connections[-1]["running"] = 1.0
    worker.close()
    wait_for(lambda: _Pool.connections[-1]["running"] is None, "the call to be given up")
    wait_for(lambda: _states(runtime)[-1] == "lost", "the worker to be counted as lost")
    stream.close()


@pytest.mark.usefixtures("quick_ticks", "no_grace")
@pytest.mark.parametrize(
    ("handler", "answer"), [("ours", "stock\0"), ("another", "refused\0"), ("none", "refused\0")]
)
def test_a_model_whose_calls_do_not_come_back_is_parted_with(
    runtime: Path, model: Path, tmp_path: Path, handler: str, answer: str
) -> None:
    _Pool.connections = []
    if handler != "none":
        text = Path(str(interpool_handler.__file__)).read_text()
        (model / "interpool_handler.py").write_text(text + ("" if handler == "ours" else "import evil\n"))
    for index in range(3):
        _lose_a_call(runtime, tmp_path / f".s{index}", model)
    late = Shim(runtime, f"unix:{tmp_path}/.s3", model)
    said = late.answer()
    assert said.startswith(answer)
    assert "3 of its calls did not come back" in said
    late.close()
    served = json.loads(control.ask_status(runtime))["served"][str(model)]
    assert served["given_up"] == 3
    for index in range(3):
        _Pool.end(index)
    wait_for(lambda: _states(runtime) == [], "the lost workers' end")


@pytest.mark.usefixtures("quick_ticks", "no_grace")
def test_two_calls_that_do_not_come_back_are_borne(runtime: Path, model: Path, tmp_path: Path) -> None:
    _Pool.connections = []
    for index in range(2):
        _lose_a_call(runtime, tmp_path / f".s{index}", model)
    worker = Shim(runtime, f"unix:{tmp_path}/.s2", model)
    assert worker.answer() == "ready"
    worker.close()
    for index in range(2):
        _Pool.end(index)
    wait_for(lambda: _states(runtime) == [], "all workers' end")


def test_a_model_that_leaves_traces_has_interpreters_of_its_own_and_keeps_its_workers(
    runtime: Path, model: Path, tmp_path: Path
) -> None:
    _Pool.connections = []
    worker, stream, token = _serve(runtime, tmp_path / ".s0", model)
    ask_for_own_interpreters(token.failed_load, "its operator is another's")  # and waits until it has them
    assert _Pool.isolated == [str(model)]
    Report("traces", token.pid, 1, reason="it has replaced torch.relu").send(token.reports)
    late, late_stream, _ = _serve(runtime, tmp_path / ".s1", model)
    assert _Pool.isolated == [str(model)]
    served = json.loads(control.ask_status(runtime))["served"][str(model)]
    assert served["traces"] == "its operator is another's"
    _Pool.end(0)
    _Pool.end(1)
    for thing in (stream, late_stream, worker, late):
        thing.close()


@pytest.mark.usefixtures("quick_ticks")
def test_a_model_that_left_traces_before_gets_a_process_once_many_interpreters_are_gone(
    runtime: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_host, "MODEL_CHECK_S", 0.1)
    monkeypatch.setattr(pool_host, "LOOK_S", 0.1)
    _Pool.connections = []
    again, other = tmp_path / "again", tmp_path / "other"
    shutil.copytree(model, again)
    shutil.copytree(model, other)
    text = (other / "MAR-INF/MANIFEST.json").read_text()
    (other / "MAR-INF/MANIFEST.json").write_text(text.replace('"modelName": "m"', '"modelName": "other"'))
    worker, stream, token = _serve(runtime, tmp_path / ".s0", model)
    Report("traces", token.pid, 1, reason="it has replaced torch.relu").send(token.reports)
    shutil.rmtree(model)
    assert worker.answer() == "bye"
    _Pool.end(0)
    wait_for(lambda: json.loads(control.ask_status(runtime))["gone"], "the model to be forgotten")
    monkeypatch.setattr(_Pool, "retired", pool_host.MOST_LOST)
    time.sleep(0.5)  # some looks
    for path in (".s1", ".s2"):  # of both workers
        late = Shim(runtime, f"unix:{tmp_path}/{path}", again)
        assert late.answer() == f"pool\0{own_pool(again)}"
        late.close()
    new = Shim(runtime, f"unix:{tmp_path}/.s3", other)
    assert new.answer() == "ready"
    for thing in (stream, worker, new):
        thing.close()


@pytest.mark.usefixtures("quick_ticks", "pool")
def test_a_host_that_lost_its_gpu_leaves_after_the_answer_and_the_next_one_serves_that_model_apart(
    model: Path, tmp_path: Path, frontend: subprocess.Popen[bytes]
) -> None:
    _Pool.connections = []
    other = new_model(tmp_path / "other")
    (other / "weights").write_text("another archive")
    said = "this process can use its GPU no more: CUDA error: device-side assert triggered"
    with _host(tmp_path, frontend, is_last=False) as runtime:
        worker, stream, token = _serve(runtime, tmp_path / ".s0", model)
        neighbour, neighbours_stream, _ = _serve(runtime, tmp_path / ".s1", other, pid="1")
        Report("device_lost", token.pid, 1, reason=said).send(token.reports)
        assert "is served by a process of its own from now on" in os.read(worker.err[0], 1000).decode()
        assert not _Pool.connections[0]["closed"]
        _Pool.end(0)  # its answer is sent
        for each in (worker, neighbour):
            assert each.answer() == "bye"
        _Pool.end(1)
    with _host(tmp_path, frontend) as runtime:
        again = Shim(runtime, f"unix:{tmp_path}/.s0", model)
        assert again.answer() == f"pool\0{own_pool(model)}"
        beside = Shim(runtime, f"unix:{tmp_path}/.s1", other)
        assert beside.answer() == "ready"
    for thing in (stream, neighbours_stream, worker, neighbour, again, beside):
        thing.close()


@pytest.mark.usefixtures("quick_ticks", "pool")
def test_a_host_that_lost_its_gpu_waits_a_moment_for_the_answer_and_no_longer(
    model: Path, tmp_path: Path, frontend: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_host, "LAST_ANSWER_S", 0.2)
    _Pool.connections = []
    with _host(tmp_path, frontend, is_last=False) as runtime:
        worker, stream, token = _serve(runtime, tmp_path / ".s0", model)
        Report("device_lost", token.pid, 1, reason="CUDA error: launch failure").send(token.reports)
        assert worker.answer() == "bye"
        _Pool.end(0)
    stream.close()
    worker.close()
    shutil.rmtree(runtime)


@pytest.mark.usefixtures("quick_ticks")
@pytest.mark.parametrize(
    ("lack", "said"),
    [
        (MemoryError(), "the pool host has no memory left for this worker: `interpool status` says"),
        (RuntimeError("a thread cannot be started: no room"), "no room; raise `ulimit -u`, `ulimit -v`"),
    ],
)
def test_a_worker_that_cannot_be_served_for_a_lack_ends_and_says_so(
    runtime: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lack: Exception, said: str
) -> None:
    """Else TorchServe waits for its load until the time is over, and its log stays open."""

    def serve(_pool: _Pool, fd: int, **_options: object) -> None:
        os.close(fd)  # as the pool does
        raise lack

    monkeypatch.setattr(_Pool, "serve", serve)
    worker = Shim(runtime, f"unix:{tmp_path}/.s", model)
    assert worker.answer() == "ready"
    stream = connect(tmp_path / ".s")
    answer = worker.answer()
    assert answer.startswith("refused\0")
    assert said in answer
    assert stream.recv(1) == b""
    log = os.read(worker.err[0], 1000).decode()
    assert log.startswith("interpool: the pool host could not serve this worker: ")
    assert said in log
    wait_for(worker.log_is_closed, "the end of its log")
    assert _states(runtime) == []
    stream.close()
    worker.close()


@pytest.mark.usefixtures("pool", "quick_ticks")
def test_a_host_whose_events_all_fail_makes_room_for_the_next_one(
    frontend: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_self: object) -> None:
        raise OSError("nobody knows why")

    monkeypatch.setattr(survival, "MOST_FAILED_TURNS", 3)
    monkeypatch.setattr(pool_host.PoolHost, "_on_shim", fail)
    with _host(tmp_path / "base", frontend) as runtime:
        late = shim.connect_control(str(runtime))
        wait_for(lambda: not runtime.exists(), "the host to leave")
        late.close()


@pytest.mark.usefixtures("pool", "quick_ticks")
def test_a_host_whose_selector_was_closed_leaves_at_once(
    frontend: subprocess.Popen[bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """By a model, which took its number for one of its own: the next host has all that it needs."""
    is_closed = threading.Event()

    class Selector(selectors.EpollSelector):
        def select(self, timeout: float | None = None) -> Any:
            if is_closed.is_set():  # as if it were: its number may be another test's by then
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            return super().select(timeout)

    monkeypatch.setattr(pool_host.selectors, "DefaultSelector", Selector)
    with _host(tmp_path / "base", frontend) as runtime:
        is_closed.set()
        wait_for(lambda: not runtime.exists(), "the host to leave")
    (said,) = (line for line in caplog.messages if "cannot go on" in line)
    assert "a turn of the host was cut short: Bad file descriptor. Has a model closed what is not" in said


@pytest.mark.usefixtures("quick_ticks")
def test_a_clock_that_is_set_ends_no_worker(
    runtime: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_host, "MODEL_CHECK_S", 0.05)
    worker = Shim(runtime, f"unix:{tmp_path}/.s", model)
    assert worker.answer() == "ready"
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 86_400)
    checked: list[None] = []
    end_stale_workers = PoolHost._end_stale_workers
    monkeypatch.setattr(
        PoolHost, "_end_stale_workers", lambda host: (end_stale_workers(host), checked.append(None))
    )
    wait_for(lambda: len(checked) > 2, "the host to look for workers to which TorchServe did not come")
    status = json.loads(control.ask_status(runtime))
    assert [each["state"] for each in status["workers"]] == ["listening"]
    assert status["uptime_s"] < 3600
    assert status["workers"][0]["seconds"] < 3600
    worker.close()
    wait_for(lambda: _states(runtime) == [], "the worker's end")
