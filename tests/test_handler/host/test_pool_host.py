"""The control plane with a pool that answers nothing: its races, without TorchServe."""

from __future__ import annotations

import errno
import json
import os
import selectors
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from extracted import extracted
from local_server import free_ports
from shims import Shim, connect, new_model
from waiting import wait_for

import interpool.native
from interpool.handler import failed_load
from interpool.handler.config import own_pool
from interpool.handler.direct.host_link import FIRST_NUMBER
from interpool.handler.frontend import shim
from interpool.handler.host import control, device_loss, isolation, pool_host, survival
from interpool.handler.host.interpreter_pool import Pool
from interpool.handler.host.pool_host import TICK_S, PoolHost
from interpool.handler.host.worker import Worker
from interpool.handler.host.worker_ends import WorkerEnds
from interpool.handler.worker_reports import Kind, Report
from interpool.handler.worker_token import WorkerToken


class _Pool:
    """Keeps what it is given; a connection ends on demand."""

    connections: list[dict[str, Any]]
    forgotten: list[str]
    messages: list[str]
    isolated: list[str]
    retired: int = 0
    sizes: list[tuple[int, int]]

    def __init__(self, count: int, *, preload: list[str]) -> None:
        assert preload == ["interpool.handler.backend.service"]
        self.min_size = self.max_size = self._count = count
        _Pool.sizes = []
        _Pool.connections = []
        _Pool.forgotten = []
        _Pool.messages = []
        _Pool.isolated = []

    def __len__(self) -> int:
        return self._count

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
        _Pool.messages.append(argument)

    def all_instances(self) -> list[Any]:
        return []

    def stats(self) -> dict[str, object]:
        sizes = {"max_size": self.max_size, "reserve": 0, "waiting": 0, "growing": False, "failure": ""}
        retired = {"state": "retired", "affinities": [], "idle": [], "owner": None, "seconds": None}
        interpreters = [{"interpreter": number, **retired} for number in range(_Pool.retired)]
        return {"interpreters": interpreters, "models": {}, **sizes}

    def serve(self, fd: int, **options: Any) -> Any:
        entry = {"socket": socket.socket(fileno=fd), "closed": False, **options}
        _Pool.connections.append(entry)

        class Connection:
            where = ""
            importing = False
            requests: tuple[str, ...] = ()

            @property
            def running(self) -> float | None:
                running: float | None = entry.get("running")
                began = entry.get("began")
                return time.monotonic() - began if began is not None else running

            def interrupt(self) -> bool:
                entry["interrupted"] = entry.get("interrupted", 0) + 1
                return True

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
    new_model(model, configFile="config.yaml")


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
    directory: Path,
    frontend: subprocess.Popen[bytes],
    *,
    ahead: bool = False,
    is_last: bool = True,
    trouble: Callable[[], str] | None = None,
) -> Iterator[Path]:
    """A host that runs in a thread; gives its runtime directory.

    ``is_last``: it leaves as its server ends; else it is to leave by itself, and its server lives.
    """
    directory /= shim.instance_key(frontend.pid, "default")
    shim.make_private(str(directory))
    pool = Pool()
    pool.start()
    host = PoolHost(directory, "default", frontend.pid, pool, ahead=ahead, trouble=trouble)
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
    monkeypatch.setenv("INTERPOOL_INTERPRETERS", "2")


@pytest.fixture
def runtime(pool: None, tmp_path: Path, frontend: subprocess.Popen[bytes]) -> Iterator[Path]:
    with _host(tmp_path, frontend) as directory:
        yield directory


def test_a_direct_address_that_is_not_served_is_a_trouble(
    pool: None, tmp_path: Path, frontend: subprocess.Popen[bytes]
) -> None:
    with _host(tmp_path, frontend, trouble=lambda: "the direct address is not served") as runtime:
        state = json.loads(control.ask(runtime))
    assert (state["direct"], state["trouble"]) == (None, "the direct address is not served")


def _states(runtime: Path) -> list[str]:
    return [worker["state"] for worker in json.loads(control.ask(runtime))["workers"]]


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
    """A worker that TorchServe has connected to, and its token."""
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
    wait_for(lambda: _Pool.messages == [str(token.state)], "the interpreters to get the message")
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
    wait_for(lambda: _Pool.messages == [str(token.state)], "the interpreters to get the message")
    for index in range(2):
        _Pool.end(index)
    for thing in (stream, other_stream, first, second):
        thing.close()


@pytest.mark.long
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
    beside = Shim(runtime, f"unix:{path}", model, pid=str(FIRST_NUMBER), beside=str(os.getpid()))
    assert beside.answer() == "gone"  # so it does not try again
    for thing in (worker, late, beside):
        thing.close()


@pytest.mark.long
def test_a_worker_beside_one_of_a_model_that_is_gone_may_answer_first(
    runtime: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interpool.handler.host.pool_host.MODEL_CHECK_S", 0.1)
    _Pool.connections = []
    theirs, stream, _ = _serve(runtime, tmp_path / ".s0", model)
    beside, beside_stream, _ = _serve(
        runtime, tmp_path / ".s1", model, pid=str(FIRST_NUMBER), beside=str(os.getpid())
    )
    model.rename(tmp_path / "moved")
    assert theirs.answer() == "bye"
    assert beside.answer() == "gone"
    wait_for(lambda: _Pool.connections[0]["closed"], "the end of TorchServe's worker")
    time.sleep(2 * TICK_S)
    assert not _Pool.connections[1]["closed"]
    beside.peer.close()
    wait_for(lambda: _Pool.connections[1]["closed"], "its own end")
    for index in range(2):
        _Pool.end(index)
    for thing in (stream, beside_stream, theirs, beside):
        thing.close()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"protocol": "0"}, "different versions of interpool"),
        ({"pid": "x"}, "cannot parse"),
        ({"channel": "x"}, "cannot parse"),
        ({"beside": "-1"}, "cannot parse"),
        ({"address": "unix:/nowhere/sock"}, "cannot listen on"),
    ],
)
def test_a_model_that_cannot_be_served_is_refused_with_the_reason(
    runtime: Path, model: Path, tmp_path: Path, fields: dict[str, str], words: str
) -> None:
    worker = Shim(runtime, f"unix:{tmp_path}/.s", model, **({} if "address" in fields else fields))
    if "address" in fields:
        worker.close()
        worker = Shim(runtime, fields["address"], model)
    assert words in worker.answer()
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


@pytest.mark.usefixtures("pool")
def test_a_host_whose_directory_was_removed_leaves_the_next_ones_alone(
    frontend: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    with _host(tmp_path, frontend, is_last=False) as runtime:
        shutil.rmtree(runtime)
        shim.make_private(str(runtime))
        listener = control.listen(runtime)
        frontend.kill()
    shim.connect_control(str(runtime)).close()
    listener.close()


@pytest.mark.usefixtures("pool")
def test_a_host_whose_directory_was_removed_does_not_make_it_again(
    frontend: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    with _host(tmp_path, frontend) as runtime:
        shutil.rmtree(runtime)


@pytest.mark.usefixtures("quick_ticks")
@pytest.mark.parametrize(("begins", "ends"), [("loading", "loaded"), ("searching", "searched")])
def test_a_load_or_search_does_not_count_against_the_limit_of_a_call(
    runtime: Path, model: Path, tmp_path: Path, begins: Kind, ends: Kind
) -> None:
    _Pool.connections = []
    _configure(model, "interpool: {call_limit: 0.2}\n")
    worker, stream, token = _serve(runtime, tmp_path / ".s", model)
    began = time.monotonic()
    Report(begins, token.pid, 1).send(token.reports)
    _states(runtime)  # reports are read by then
    call = _Pool.connections[0]
    call["began"] = began
    wait_for(lambda: time.monotonic() - began > 0.6, "thrice the limit")
    _states(runtime)
    assert "interrupted" not in call
    Report(ends, token.pid, 1).send(token.reports)
    wait_for(lambda: "interrupted" in call, "the call to be interrupted, as it goes on after the load")
    call["began"] = None
    _Pool.end(0)
    stream.close()
    worker.close()


def test_why_a_worker_ends_is_kept_if_other_reports_follow(
    runtime: Path, model: Path, tmp_path: Path
) -> None:
    _Pool.connections = []
    worker, stream, token = _serve(runtime, tmp_path / ".s", model)
    Report("ended", token.pid, 1, reason="SystemExit: 3").send(token.reports)
    Report("loaded", token.pid, 2).send(token.reports)
    _Pool.end(0)
    assert worker.answer() == "bye"
    (served,) = json.loads(control.ask(runtime))["served"].values()
    assert served["worker_ends"] == {"model_exit": 1}
    stream.close()
    worker.close()


@pytest.mark.usefixtures("quick_ticks")
def test_a_model_that_a_trial_leaves_to_stock_workers_is_served_no_more(
    runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would count as a model without workers, and the server as not ready."""
    monkeypatch.setattr(pool_host, "LOOK_S", 0.05)
    ordinary = extracted(tmp_path / "ordinary", handler="handler.py")
    (ordinary / "handler.py").touch()
    worker = Shim(runtime, f"unix:{tmp_path}/.s", ordinary)
    assert worker.answer() == "ready"
    worker.connect()  # this pool can try no model
    assert worker.answer().startswith("stock\0it could not be tried")
    wait_for(lambda: not json.loads(control.ask(runtime))["served"], "the model to be removed")
    (gone,) = json.loads(control.ask(runtime))["gone"].values()
    assert (gone["worker_starts"], gone["worker_ends"]) == (1, {"left_to_stock": 1})
    worker.close()


@pytest.mark.usefixtures("quick_ticks")
def test_a_model_that_asks_for_a_process_is_served_until_its_last_worker_has_ended(
    runtime: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_host, "LOOK_S", 0.05)
    _Pool.connections = []
    worker, stream, token = _serve(runtime, tmp_path / ".s0", model)
    failed_load.ask_for_own_process(token.failed_load, "fork inside")
    late = Shim(runtime, f"unix:{tmp_path}/.s1", model)
    assert late.answer() == "stock\0fork inside"
    time.sleep(0.3)  # some looks
    assert list(json.loads(control.ask(runtime))["served"]) == [str(model)]
    _Pool.end(0)
    assert worker.answer() == "bye"
    wait_for(lambda: not json.loads(control.ask(runtime))["served"], "the model to be removed")
    (gone,) = json.loads(control.ask(runtime))["gone"].values()
    assert gone["worker_ends"] == {"disconnected": 1}
    for thing in (stream, worker, late):
        thing.close()


def test_a_connection_that_cannot_be_accepted_ends_its_worker(
    runtime: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def accept(_worker: Worker) -> bool:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(Worker, "accept", accept)
    worker = Shim(runtime, f"unix:{tmp_path}/.s", model)
    assert worker.answer() == "ready"
    worker.connect()
    assert worker.answer().startswith("refused\0")
    assert worker.answer() == "bye"
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
    wait_for(lambda: json.loads(control.ask(runtime))["gone"], "the model to be forgotten")
    monkeypatch.setattr(_Pool, "retired", isolation.MOST_RETIRED)
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
        neighbour, neighbours_stream, neighbours = _serve(runtime, tmp_path / ".s1", other, pid="1")
        Report("device_lost", token.pid, 1, reason=said).send(token.reports)
        assert (
            "is served by a process of its own until the server ends" in os.read(worker.err[0], 1000).decode()
        )
        assert not _Pool.connections[0]["closed"]
        Report("device_lost", neighbours.pid, 1, reason=said).send(neighbours.reports)
        assert os.read(neighbour.err[0], 1000).decode() == f"interpool: {said}\n"
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
    monkeypatch.setattr(device_loss, "LAST_ANSWER_S", 0.2)
    _Pool.connections = []
    with _host(tmp_path, frontend, is_last=False) as runtime:
        worker, stream, token = _serve(runtime, tmp_path / ".s0", model)
        Report("device_lost", token.pid, 1, reason="CUDA error: launch failure").send(token.reports)
        assert worker.answer() == "bye"
        _Pool.end(0)
    stream.close()
    worker.close()
    shutil.rmtree(runtime)


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

    monkeypatch.setattr(selectors, "DefaultSelector", Selector)
    with _host(tmp_path / "base", frontend) as runtime:
        is_closed.set()
        wait_for(lambda: not runtime.exists(), "the host to leave")
    (said,) = (line for line in caplog.messages if "cannot go on" in line)
    assert "a turn of the host was cut short: Bad file descriptor. Has a model closed what is not" in said


@pytest.mark.long
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
    end_stale = WorkerEnds.end_stale
    monkeypatch.setattr(WorkerEnds, "end_stale", lambda ends: (end_stale(ends), checked.append(None)))
    wait_for(lambda: len(checked) > 2, "the host to look for workers to which TorchServe did not come")
    status = json.loads(control.ask(runtime))
    assert [each["state"] for each in status["workers"]] == ["listening"]
    assert status["uptime_s"] < 3600
    assert status["workers"][0]["seconds"] < 3600
    worker.close()
    wait_for(lambda: _states(runtime) == [], "the worker's end")
