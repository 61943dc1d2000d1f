"""Which ordinary models the pool serves: known from their files, found by a trial, and kept over a crash."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from extracted import extracted, token

from interpool.handler.config import HostSettings
from interpool.handler.host.interpreter_pool import Pool
from interpool.handler.host.isolation import Isolation
from interpool.handler.host.kept_directory import KeptDirectory
from interpool.handler.host.served_models import ServedModels
from interpool.handler.worker_token import WorkerToken
from interpool.native.errors import RemoteError


class _Pool:
    """Two interpreters, in which ``load(number, log)`` is what becomes of a load.

    With ``apart``, the model is to have interpreters of its own for that reason. ``states`` are those of the
    pool's interpreters.
    """

    min_size = 2

    def __init__(
        self, load: Callable[[int, int], str], apart: str = "", states: tuple[str, ...] = ("free", "free")
    ) -> None:
        self._states = dict(enumerate(states, 1))
        self._load = load
        self._apart = apart
        self.isolated: list[str] = []
        self.loads: list[int] = []
        self.limits: list[float] = []
        self.forgotten: list[int] = []

    def all_instances(self) -> list[Any]:
        return [
            SimpleNamespace(interpreter_id=n, acquire_session=lambda n=n, **_: self._session(n))
            for n in self._states
        ]

    def __len__(self) -> int:
        return len(self._states)

    def acquire_session(self, affinity: str, call_limit: float) -> Any:
        assert affinity
        self.limits.append(call_limit)
        return self._session(3 if affinity in self.isolated else 1)

    def isolate(self, affinity: str) -> None:
        self.isolated.append(affinity)

    def forget(self, affinity: str) -> None:
        self.isolated.remove(affinity)

    def stats(self) -> dict[str, Any]:
        found = [
            {"interpreter": number, "owner": None, "state": state} for number, state in self._states.items()
        ]
        return {"interpreters": found, "failure": "", "growing": False}

    @contextmanager
    def _session(self, number: int) -> Iterator[Any]:
        def global_(_module: str, name: str) -> Any:
            if name == "drop":
                return lambda _directory, _own_states: self.forgotten.append(number)
            return lambda token, _fd: SimpleNamespace(
                to_value=lambda: (self._try(number, token), self._apart, "weights")
            )

        yield SimpleNamespace(interpreter_id=number, global_=global_)

    def _try(self, number: int, token: str) -> str:
        self.loads.append(number)
        return self._load(number, WorkerToken.of_text(token).stdout)


class _Worker:
    """A worker of an ordinary model, to which TorchServe has connected."""

    def __init__(self, model_dir: Path) -> None:
        self.frontend, self.stream = socket.socketpair()
        self.log, log = os.pipe()
        self.stdio = (log, log)
        self.channel = None
        self.registration = SimpleNamespace(model_dir=str(model_dir))
        self.load_limit_s = 120.0
        self.own_state = False

    def token(self) -> WorkerToken:
        return token()

    def said(self) -> str:
        os.set_blocking(self.log, False)
        try:
            return os.read(self.log, 1000).decode()
        except BlockingIOError:
            return ""

    def close(self) -> None:
        for descriptor in (self.log, self.stdio[0]):
            os.close(descriptor)
        self.frontend.close()
        self.stream.close()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    directory = extracted(tmp_path / "model", handler="handler.py")
    (directory / "handler.py").write_text("")
    return directory


@pytest.fixture
def runtime(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


@pytest.fixture
def worker(model: Path) -> Iterator[_Worker]:
    made = _Worker(model)
    yield made
    made.close()


def _isolation(runtime: Path) -> Isolation:
    return Isolation(runtime, HostSettings.of_environment({}), Pool(), ServedModels(), is_own=False)


def _try_out(models: Isolation, worker: Any, pool: Any) -> list[Any]:
    over = threading.Event()
    models.try_out(worker, pool, over.set)
    assert over.wait(60)
    return models.take_trials()


def _say(log: int) -> str:
    os.write(log, b"loading\n")
    return ""


def test_a_model_that_two_interpreters_load_is_the_pools(runtime: Path, model: Path, worker: Any) -> None:
    models, pool = _isolation(runtime), _Pool(lambda _number, log: _say(log))
    assert not models.is_tried(worker)
    assert _try_out(models, worker, pool) == [worker]
    assert (models.is_tried(worker), models.left_to_stock(str(model), ordinary=True)) == (True, "")
    assert (pool.loads, worker.said()) == ([1, 2], "loading\n")  # once
    assert list(runtime.iterdir()) == []


@pytest.mark.parametrize(
    ("waits", "takes", "loads"), [(120, 39, [1, 2]), (120, 41, [1]), (300, 41, [1, 2]), (9, 4, [1])]
)
def test_a_model_that_takes_long_of_what_torchserve_waits_is_loaded_once(
    runtime: Path,
    worker: Any,
    monkeypatch: pytest.MonkeyPatch,
    waits: float,
    takes: float,
    loads: list[int],
) -> None:
    now = 0.0

    def load(_number: int, log: int) -> str:
        nonlocal now
        now += takes
        return _say(log)

    clock = SimpleNamespace(monotonic=lambda: now, sleep=time.sleep)
    monkeypatch.setattr("interpool.handler.host.ordinary_trial.time", clock)
    worker.load_limit_s = waits
    models, pool = _isolation(runtime), _Pool(load)
    assert _try_out(models, worker, pool) == [worker]
    assert (pool.loads, pool.limits) == (loads, [waits])
    model_dir = worker.registration.model_dir
    assert (models.is_tried(worker), models.left_to_stock(model_dir, ordinary=True)) == (True, "")
    assert worker.said() == "loading\n"


def test_a_model_whose_files_show_what_it_needs_is_left_to_stock_workers_untried(
    runtime: Path, model: Path
) -> None:
    (model / "handler.py").write_text("import signal as s\ns.signal(s.SIGUSR1, print)\n")
    models = _isolation(runtime)
    assert models.left_to_stock(str(model), ordinary=False) == ""
    why = models.left_to_stock(str(model), ordinary=True)
    assert why.startswith("handler.py:2 calls signal.signal: it handles signals")


def test_a_model_that_leaves_traces_is_tried_in_no_second_interpreter(
    runtime: Path, model: Path, worker: Any
) -> None:
    models = _isolation(runtime)
    pool = _Pool(lambda _number, log: _say(log), apart="it has left traces")
    assert _try_out(models, worker, pool) == [worker]
    assert models.left_to_stock(str(model), ordinary=True) == ""
    assert pool.loads == [1]


def test_a_model_that_a_neighbour_is_in_the_way_of_is_tried_by_itself(
    runtime: Path, model: Path, worker: Any
) -> None:
    models = _isolation(runtime)
    pool = _Pool(lambda number, log: _say(log) if number == 3 else "the name is taken", apart="its operator")
    assert _try_out(models, worker, pool) == [worker]
    assert models.left_to_stock(str(model), ordinary=True) == ""
    assert pool.isolated == [str(model)]
    assert pool.loads == [1, 3]


def test_a_model_that_cannot_be_loaded_by_itself_either_keeps_no_interpreter(
    runtime: Path, model: Path, worker: Any
) -> None:
    models = _isolation(runtime)
    pool = _Pool(lambda _number, _log: "the name is taken", apart="its operator")
    assert _try_out(models, worker, pool) == [worker]
    assert models.left_to_stock(str(model), ordinary=True).startswith("the name is taken")
    assert pool.loads == [1, 3]
    assert pool.isolated == []


def test_a_model_is_tried_in_an_interpreter_that_is_free_if_there_is_one(runtime: Path, worker: Any) -> None:
    models = _isolation(runtime)
    pool = _Pool(lambda _number, log: _say(log), states=("free", "leased", "free"))
    assert _try_out(models, worker, pool) == [worker]
    assert pool.loads == [1, 3]


def test_a_worker_with_a_state_of_its_own_loads_the_model_itself(runtime: Path, worker: Any) -> None:
    worker.own_state = True
    pool = _Pool(lambda _number, log: _say(log))
    assert _try_out(_isolation(runtime), worker, pool) == [worker]
    assert pool.forgotten == [1, 2]


@pytest.mark.parametrize("failing", [1, 2])
def test_a_model_that_one_cannot_load_is_left_to_stock_workers(
    runtime: Path, model: Path, worker: Any, failing: int
) -> None:
    models = _isolation(runtime)
    pool = _Pool(lambda number, log: "no\n room" if number == failing else _say(log))
    assert _try_out(models, worker, pool) == [worker]
    assert models.left_to_stock(str(model), ordinary=True).startswith("no room")
    assert pool.forgotten == list(range(1, failing))  # where it was loaded
    assert worker.said() == ""  # the stock worker says it all


def test_a_trial_that_torchserve_left_decides_nothing(runtime: Path, worker: Any) -> None:
    models = _isolation(runtime)

    def gone(_number: int, _log: int) -> str:
        worker.frontend.close()
        raise RemoteError("TruncatedFrameError", "the stream has 0 bytes", "")

    assert _try_out(models, worker, _Pool(gone)) == [worker]
    assert not models.is_tried(worker)


def test_a_trial_whose_worker_ends_as_the_host_leaves_is_no_error(
    runtime: Path, worker: Any, caplog: pytest.LogCaptureFixture
) -> None:
    models, pool = _isolation(runtime), _Pool(lambda _number, log: _say(log))
    worker.frontend.close()
    runtime.rmdir()
    with caplog.at_level("INFO", "interpool.host"):
        assert _try_out(models, worker, pool) == [worker]
    assert not models.is_tried(worker)
    assert [record.levelname for record in caplog.records] == ["INFO", "INFO", "INFO"], caplog.text
    assert "was given up, as its worker has ended" in caplog.text


def test_a_directory_that_a_trial_used_up_is_put_back_for_the_stock_worker(
    runtime: Path, model: Path, worker: Any
) -> None:
    (model / "weights.zip").write_text("weights")
    inode = model.stat().st_ino

    def load(_number: int, _log: int) -> str:
        (model / "weights.zip").rename(model / "weights")
        return "no room"

    assert _try_out(_isolation(runtime), worker, _Pool(load)) == [worker]
    assert sorted(path.name for path in model.iterdir()) == ["MAR-INF", "handler.py", "weights.zip"]
    assert model.stat().st_ino == inode  # processes work in it
    assert sorted(path.name for path in model.parent.iterdir()) == ["model", "run"]


@pytest.mark.parametrize("is_gone", [True, False], ids=["it is gone", "it is being removed"])
def test_the_directory_of_a_model_that_was_unregistered_in_its_trial_is_not_put_back(
    runtime: Path, model: Path, worker: Any, is_gone: bool
) -> None:
    def load(_number: int, _log: int) -> str:
        worker.frontend.close()
        (model / "handler.py").unlink()
        if is_gone:
            shutil.rmtree(model)
        return "no handler"

    assert _try_out(_isolation(runtime), worker, _Pool(load)) == [worker]
    assert not (model / "handler.py").exists()
    assert model.exists() != is_gone
    assert list(model.parent.glob(".interpool-*")) == []


def test_a_directory_that_is_gone_is_not_made_anew(model: Path) -> None:
    with KeptDirectory(str(model)) as kept:
        shutil.rmtree(model)
        kept.put_back()
    assert not model.exists()


def _die_in_a_trial(runtime: Path, model: Path) -> None:
    """What a host leaves that ends with the model's load, which has used up a file."""
    program = """
import os, sys
from pathlib import Path
sys.path[:0] = sys.argv[3:]
from test_handler.host.test_isolation import _Pool, _Worker, _isolation, _try_out

def load(number, log):
    os.unlink("weights.zip")
    os._exit(7)

_try_out(_isolation(Path(sys.argv[1])), _Worker(Path(sys.argv[2])), _Pool(load))
"""
    tests = Path(__file__).parents[2]
    command = [sys.executable, "-c", program, str(runtime), str(model), str(tests)]
    assert subprocess.run(command, cwd=model, check=False).returncode == 7


def test_a_directory_that_was_used_up_as_its_trial_ended_the_host_is_restored_by_the_next_one(
    runtime: Path, model: Path
) -> None:
    (model / "weights.zip").write_text("weights")
    inode = model.stat().st_ino
    _die_in_a_trial(runtime, model)
    assert not (model / "weights.zip").exists()
    models = _isolation(runtime)
    assert sorted(path.name for path in model.iterdir()) == ["MAR-INF", "handler.py", "weights.zip"]
    assert model.stat().st_ino == inode
    assert sorted(path.name for path in model.parent.iterdir()) == ["model", "run"]
    assert "the pool host ended while it tried" in models.left_to_stock(str(model), ordinary=True)


def test_a_directory_that_was_used_up_as_the_host_left_in_its_trial_is_restored_for_the_next_trial(
    runtime: Path, model: Path
) -> None:
    (model / "weights.zip").write_text("weights")
    _die_in_a_trial(runtime, model)
    shutil.rmtree(runtime)  # as a host does that leaves
    with KeptDirectory(str(model)):
        assert (model / "weights.zip").read_text() == "weights"
    assert [path.name for path in model.parent.iterdir()] == ["model"]


def test_nothing_is_kept_of_a_model_that_was_unregistered_after_its_trial_ended_the_host(
    runtime: Path, model: Path
) -> None:
    (model / "weights.zip").write_text("weights")
    _die_in_a_trial(runtime, model)
    shutil.rmtree(model)
    _isolation(runtime)
    assert [path.name for path in model.parent.iterdir()] == ["run"]


def test_a_host_that_cannot_restore_a_directory_starts_all_the_same(runtime: Path) -> None:
    (runtime / "tried-0123").touch()
    _isolation(runtime)
    assert [path.name for path in runtime.iterdir()] == ["crashed-0123"]


def test_a_model_that_is_gone_is_forgotten(runtime: Path, model: Path, worker: Any) -> None:
    models = _isolation(runtime)
    models.leave_to_stock(str(model), "it asked for a process")
    assert models.is_tried(worker)
    models.forget_models()
    assert models.is_tried(worker)
    model.rename(model.with_name("elsewhere"))
    models.forget_models()
    assert not models.is_tried(worker)
