"""Which calls are ended, and how."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any, cast

import pytest

from interpool.handler.host import call_timeouts
from interpool.handler.host.call_timeouts import CallTimeouts
from interpool.handler.host.worker import Worker


class _Connection:
    def __init__(self) -> None:
        self.running: float | None = 1.0
        self.interruptions = 0
        self.where = "\n  loop (m.py:3)"
        self.importing = False
        self.requests = ["0123456789ab"]

    def interrupt(self) -> bool:
        self.interruptions += 1
        return True

    def give_up(self) -> int | None:
        was, self.running = self.running, None
        return None if was is None else 7


def _worker(**fields: Any) -> Any:
    usual = {"connection": _Connection(), "state": "connected", "answering": False, "call_limit_s": None}
    about = {
        "model": "m/1.0",
        "registration": SimpleNamespace(pid=5),
        "without_load": float,
    }

    class Of(SimpleNamespace):
        __hash__ = object.__hash__

    return cast(Worker, Of(**{**usual, **about, **fields}))


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The time, which a test sets."""
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(call_timeouts, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def test_a_call_that_torchserve_waits_for_is_left_alone() -> None:
    watch, worker = CallTimeouts(), _worker()
    assert watch.look([worker]) == []
    assert not watch.is_busy
    assert worker.connection.interruptions == 0


@pytest.mark.parametrize("fields", [{"state": "ending"}, {"call_limit_s": 0.5}])
def test_a_call_without_a_client_or_that_takes_too_long_is_interrupted_thrice_and_given_up(
    seconds: Any, fields: dict[str, Any]
) -> None:
    watch, worker = CallTimeouts(grace_s=4.0), _worker(**fields)
    counts = []
    for _ in range(5):
        lost = watch.look([worker])
        counts.append(worker.connection.interruptions)
        seconds.now += 1.0
    assert counts == [1, 1, 2, 3, 3]
    assert [each.worker for each in lost] == [worker]
    assert "interpreter 7 is retired" in lost[0].reason
    assert "loop (m.py:3)" in lost[0].reason
    assert "a call of m/1.0 [request 01234567] was interrupted" in lost[0].reason
    assert not watch.is_busy
    assert watch.look([worker]) == []


def test_an_interrupted_call_that_comes_back_costs_nothing(seconds: Any) -> None:
    watch, worker = CallTimeouts(grace_s=4.0), _worker(state="ending")
    watch.look([worker])
    worker.connection.running = None
    seconds.now += 10.0
    assert watch.look([worker]) == []
    assert not watch.is_busy


def test_one_that_comes_back_at_the_last_moment_is_not_given_up(seconds: Any) -> None:
    watch, worker = CallTimeouts(grace_s=4.0), _worker(state="ending")
    watch.look([worker])
    seconds.now += 10.0
    worker.connection.give_up = lambda: None
    assert watch.look([worker]) == []


def test_the_next_call_of_a_worker_has_its_own_time(seconds: Any) -> None:
    watch, worker = CallTimeouts(grace_s=4.0), _worker(call_limit_s=0.5)
    for running in itertools.islice(itertools.cycle((0.6, 0.1)), 20):
        worker.connection.running = running
        assert watch.look([worker]) == []
        seconds.now += 1.0


def test_a_worker_whose_refusal_is_to_be_sent_is_not_hurried() -> None:
    watch, worker = CallTimeouts(), _worker(state="ending", answering=True)
    assert watch.look([worker]) == []
    assert not watch.is_busy


def test_what_is_no_workers_any_more_is_forgotten() -> None:
    watch, worker = CallTimeouts(), _worker(state="ending")
    watch.look([worker])
    watch.look([])
    assert not watch.is_busy


def test_one_that_is_in_an_import_is_interrupted_as_soon_as_that_is_over(seconds: Any) -> None:
    watch, worker = CallTimeouts(grace_s=4.0), _worker(state="ending")
    worker.connection.importing = True
    for interruptions in (1, 2, 3):
        watch.look([worker])
        assert worker.connection.interruptions == interruptions
    worker.connection.importing = False
    watch.look([worker])
    assert worker.connection.interruptions == 3
