"""Several models on one pool: none keeps another one waiting for long."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from interpool_testing import Code
from waiting import wait_for

from interpool.native import InterpreterManager, InterpreterSession
from interpool.native.errors import LeaseTimeoutError


@contextmanager
def greedy(manager: InterpreterManager, workers: int) -> Iterator[threading.Event]:
    """So many threads that compute under one affinity, and ask again at once; each call lasts until told."""
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            with manager.acquire_session(affinity="greedy", timeout=60) as session:
                spin = Code(session, "def spin(): sum(range(100_000))")["spin"]
                for _ in range(20):
                    spin()

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    try:
        wait_for(lambda: manager.stats()["waiting"] > 0, "the greedy ones to wait")
        yield over
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_stats_tell_what_each_model_has() -> None:
    with InterpreterManager(1) as manager:
        with manager.acquire_session(affinity="a"):
            stats = manager.stats()
            counts = {
                name: stats["models"]["a"][name] for name in ("running", "waiting", "share", "leased_s")
            }
            assert counts == {"running": 1, "waiting": 0, "share": None, "leased_s": 0.0}
            assert (stats["interpreters"][0]["affinities"], stats["interpreters"][0]["idle"]) == (
                ["a"],
                [0.0],
            )
        stats = manager.stats()
        assert stats["models"]["a"]["running"] == 0
        assert stats["models"]["a"]["leased_s"] > 0
        manager.forget("a", stats["interpreters"][0]["interpreter"] + 1)
        assert manager.stats()["interpreters"][0]["affinities"] == ["a"]
        manager.forget("a", stats["interpreters"][0]["interpreter"])
        assert manager.stats()["interpreters"][0]["affinities"] == []
        manager.forget("a")
        assert manager.stats()["models"] == {}


def test_a_model_that_others_keep_waiting_makes_the_pool_grow_once() -> None:
    with InterpreterManager(1, max_size=3) as manager, greedy(manager, 4):

        def quiet() -> InterpreterSession:
            return manager.acquire_session(affinity="quiet", timeout=60)

        def has_reserve() -> bool:
            quiet().close()
            return bool(manager.stats()["reserve"])

        # Each of the greedy one's calls may end before the pool grows; some time one is too long.
        wait_for(has_reserve, lambda: f"the pool to grow: {manager.stats()}", seconds=120, pause=0.2)
        assert manager.stats()["models"]["greedy"]["running"] == 1
        with quiet(), pytest.raises(LeaseTimeoutError):
            manager.acquire_session(affinity="greedy", timeout=0)


def test_an_instance_is_leased_for_a_model() -> None:
    with InterpreterManager(1) as manager:
        (instance,) = manager.all_instances()
        with instance.acquire_session(timeout=60, affinity="model"):
            assert manager.stats()["models"]["model"]["running"] == 1
