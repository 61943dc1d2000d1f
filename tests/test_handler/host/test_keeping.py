"""Which models are loaded ahead, and which are dropped: the rule, and that it is carried out."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest
from waiting import wait_for

from interpool.handler.admission import Admission
from interpool.handler.host.keeping import (
    ENOUGH,
    LAST_COPY_S,
    SHORT,
    Action,
    Interpreter,
    Keeper,
    interpreters_of,
    plan,
)
from interpool.handler.worker_token import WorkerToken
from interpool.native.errors import LeaseTimeoutError

IDLE_S = 600.0
PLENTY = 1.0


def free(number: int, **idle_s: float) -> Interpreter:
    return Interpreter(number, True, idle_s)


def leased(number: int, **idle_s: float) -> Interpreter:
    return Interpreter(number, False, idle_s)


def test_a_model_in_use_is_loaded_in_one_more_interpreter_than_it_has_workers() -> None:
    pool = [free(1, a=5.0), free(2), free(3)]
    assert plan(pool, {"a": 1}, IDLE_S, PLENTY) == [Action(True, 2, "a")]
    pool = [free(1, a=5.0), free(2, a=5.0), free(3)]
    assert plan(pool, {"a": 1}, IDLE_S, PLENTY) == []
    assert plan(pool, {"a": 2}, IDLE_S, PLENTY) == [Action(True, 3, "a")]


def test_the_model_in_the_fewest_interpreters_is_loaded_where_the_fewest_models_are() -> None:
    pool = [free(1, a=1.0, b=1.0), free(2, a=1.0), free(3)]
    assert plan(pool, {"a": 4, "b": 4}, IDLE_S, PLENTY) == [Action(True, 3, "b")]


def test_nothing_is_loaded_ahead_in_the_last_free_interpreter() -> None:
    assert plan([leased(1, a=0.0), free(2)], {"a": 1}, IDLE_S, PLENTY) == []


def test_a_model_that_no_interpreter_has_is_left_to_its_first_request() -> None:
    assert plan([free(1), free(2)], {"a": 1}, IDLE_S, PLENTY) == []


def test_a_load_that_failed_is_not_tried_again_there() -> None:
    pool = [free(1, a=5.0), free(2), free(3, b=700.0)]
    workers = {"a": 1, "b": 1}
    assert plan(pool, workers, IDLE_S, PLENTY, {(2, "a")}) == [Action(True, 3, "a")]
    assert plan(pool, workers, IDLE_S, PLENTY, {(2, "a"), (3, "a")}) == []


def test_an_idle_model_stays_where_it_was_served_last_and_nowhere_else() -> None:
    pool = [free(1, a=700.0), free(2, a=650.0), leased(3, a=800.0), free(4, a=900.0)]
    assert plan(pool, {"a": 4}, IDLE_S, PLENTY) == [Action(False, 1, "a"), Action(False, 4, "a")]
    assert plan([free(1, a=9000.0)], {"a": 1}, IDLE_S, PLENTY) == []


def test_what_is_loaded_ahead_is_not_dropped_again_while_the_model_is_in_use() -> None:
    assert plan([free(1, a=1.0), free(2, a=9000.0)], {"a": 1}, IDLE_S, PLENTY) == []


def test_what_a_model_in_use_has_too_much_is_dropped_where_it_is_idle() -> None:
    pool = [free(1, a=1.0), free(2, a=2.0), free(3, a=10.0), free(4, a=700.0)]
    assert plan(pool, {"a": 1}, IDLE_S, PLENTY) == [Action(False, 4, "a")]


def test_without_a_time_nothing_is_ever_idle() -> None:
    assert plan([free(1, a=9e9), free(2, a=9e9), free(3, a=9e9)], {"a": 1}, 0.0, PLENTY) == []


def test_short_of_memory_the_copy_that_was_idle_longest_goes_and_nothing_is_loaded() -> None:
    short = SHORT - 0.01
    pool = [free(1, a=5.0, b=9000.0), free(2, a=7.0), free(3)]
    assert plan(pool, {"a": 2, "b": 2}, IDLE_S, short) == [Action(False, 2, "a")]
    pool = [free(1, a=5.0, b=9000.0), free(2), free(3)]
    assert plan(pool, {"a": 2, "b": 2}, IDLE_S, short) == [Action(False, 1, "b")]
    pool = [free(1, a=5.0, b=LAST_COPY_S - 1), leased(2, b=0.0), free(3)]
    assert plan(pool, {"a": 2, "b": 2}, IDLE_S, short) == [Action(False, 1, "b")]
    assert plan([free(1, a=5.0)], {"a": 2}, IDLE_S, short) == []
    assert plan([free(1, a=5.0), free(2)], {"a": 2}, IDLE_S, ENOUGH - 0.01) == []


def test_a_model_without_workers_is_nobodys_business() -> None:
    assert plan([free(1, gone=9000.0), free(2, gone=9000.0)], {}, IDLE_S, 0.0) == []


class _Pool:
    """Two interpreters that note what they are asked; the second can be said to be leased."""

    def __init__(self, **idle_s: list[float]) -> None:
        self.idle_s = idle_s
        self.asked: list[tuple[Any, ...]] = []
        self.is_leased = False
        self.loads = True

    def stats(self) -> dict[str, Any]:
        entries = []
        for place, number in enumerate((1, 2)):
            has = {model: idle[place] for model, idle in self.idle_s.items() if idle[place] >= 0}
            entries.append(
                {
                    "interpreter": number,
                    "state": "free",
                    "affinities": list(has),
                    "idle": list(has.values()),
                    "owner": None,
                }
            )
        parked = {"interpreter": 3, "state": "parked", "affinities": [], "idle": [], "owner": None}
        return {"interpreters": [*entries, parked]}

    def all_instances(self) -> list[Any]:
        return [SimpleNamespace(interpreter_id=n, acquire_session=self._session(n)) for n in (1, 2, 3)]

    def _session(self, number: int) -> Any:
        pool = self

        class Session:
            def __init__(self, timeout: float, affinity: str, call_limit: float) -> None:
                assert timeout == 0.0
                assert call_limit > 0
                if pool.is_leased:
                    raise LeaseTimeoutError
                pool.asked.append(("lease", number, affinity))

            def __enter__(self) -> Self:
                return self

            def __exit__(self, *_error: object) -> None:
                pool.asked.append(("release", number))

            def global_(self, _module: str, name: str) -> Any:
                def call(*arguments: Any) -> Any:
                    pool.asked.append((name, *arguments))
                    return SimpleNamespace(to_value=lambda: pool.loads)

                return call

        return Session

    def forget(self, affinity: str, interpreter: int | None = None) -> None:
        self.asked.append(("forget", affinity, interpreter))


def _worker(model_dir: str, load_command: bytes = b"load", output: str = os.devnull) -> Any:
    null = os.open(output, os.O_WRONLY)
    token = WorkerToken(null, null, "/m.yaml", "", False, 77, Admission())
    return SimpleNamespace(
        state="connected",
        own_state=False,
        registration=SimpleNamespace(model_dir=model_dir),
        connection=SimpleNamespace(load_command=load_command),
        load_limit_s=120.0,
        stdio=(null, null),
        token=lambda: token,
    )


def _keep(pool: _Pool, workers: list[Any], expected: int, free_memory: float = PLENTY) -> Keeper:
    keeper = Keeper(IDLE_S, free_memory=lambda: free_memory)
    keeper.keep(pool, workers)  # type: ignore[arg-type]
    wait_for(lambda: len(pool.asked) >= expected, "the keeper's thread")
    return keeper


def test_a_load_ahead_is_a_lease_for_the_model_with_the_workers_own_token(tmp_path: Path) -> None:
    model = str(tmp_path)
    pool = _Pool(**{model: [1.0, -1.0]})
    _keep(pool, [_worker(model)], 3)
    lease, (name, text, command), release = pool.asked
    assert (lease, name, command, release) == (("lease", 2, model), "warm", b"load", ("release", 2))
    assert WorkerToken.of_text(text).failed_load == -1  # no shim ends for it


def test_a_drop_is_told_to_the_pool() -> None:
    pool = _Pool(a=[700.0, 800.0])
    _keep(pool, [_worker("a")], 4)
    assert pool.asked == [("lease", 2, ""), ("drop", "a"), ("forget", "a", 2), ("release", 2)]


def test_an_interpreter_that_somebody_has_by_then_is_left_alone() -> None:
    pool = _Pool(a=[700.0, 800.0])
    pool.is_leased = True
    keeper = _keep(pool, [_worker("a")], 0)
    assert keeper._thread is not None
    keeper._thread.join()
    assert pool.asked == []


def test_a_load_ahead_that_failed_is_remembered_until_the_model_is_gone() -> None:
    pool = _Pool(a=[1.0, -1.0])
    pool.loads = False
    keeper = _keep(pool, [_worker("a")], 3)
    assert keeper._thread is not None
    keeper._thread.join()
    keeper._next = 0.0
    keeper.keep(pool, [_worker("a")])  # type: ignore[arg-type]
    keeper._thread.join()
    assert len(pool.asked) == 3
    keeper._next = 0.0
    keeper.keep(pool, [])  # type: ignore[arg-type]
    assert keeper._failed == set()


def test_a_worker_whose_load_command_has_not_come_is_not_loaded_ahead() -> None:
    pool = _Pool(a=[1.0, -1.0])
    assert _keep(pool, [_worker("a", b"")], 0)._thread is None


def test_where_no_thread_can_be_started_the_workers_descriptors_are_let_go_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "output"
    output.touch()
    worker = _worker("a", output=str(output))

    def descriptors() -> int:
        links = (os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd"))
        return sum(link == str(output) for link in links)

    def start(_thread: threading.Thread) -> None:
        assert descriptors() == 3  # the worker's own, and two that are this load's
        raise RuntimeError("can't start new thread")

    keeper = Keeper(IDLE_S, free_memory=lambda: PLENTY)
    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(RuntimeError, match="can't start"):
        keeper.keep(_Pool(a=[1.0, -1.0]), [worker])  # type: ignore[arg-type]
    assert descriptors() == 1


def test_parked_interpreters_keep_nothing() -> None:
    assert [one.number for one in interpreters_of(_Pool().stats())] == [1, 2]
