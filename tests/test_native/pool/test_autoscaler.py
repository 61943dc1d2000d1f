"""A pool between its minimum and its maximum size: it grows if that is of use, and shrinks again."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from archives import build_scale
from interpool_testing import Code, every_interpreter, pool_of, together
from waiting import wait_for

from interpool.native import InterpreterManager
from interpool.native.errors import LeaseTimeoutError
from interpool.native.provision.copies import Copies

MIN_SIZE, MAX_SIZE = 2, 5
NAP_S = 0.1
PARK_AFTER_S = 2.0

CORES = len(os.sched_getaffinity(0))
COMPUTE = """
import hashlib, os, select, threading
block = bytes(1 << 24)
def compute(begun, stop):
    os.write(begun, b".")
    while not select.select([stop], [], [], 0)[0]:
        hashlib.sha256(block)  # without the GIL
def delegate(threads, begun, stop):
    all = [threading.Thread(target=compute, args=(begun, stop)) for _ in range(threads)]
    for thread in all: thread.start()
    for thread in all: thread.join()
"""


pool = pool_of(MIN_SIZE, max_size=MAX_SIZE, park_after=PARK_AFTER_S)


@pytest.fixture
def elastic(pool: InterpreterManager) -> InterpreterManager:
    """The pool, at its minimum size, also if it was larger before."""
    wait_for(lambda: len(pool) == MIN_SIZE and not pool.stats()["growing"], "the pool to shrink")
    return pool


def states(manager: InterpreterManager) -> dict[int, str]:
    return {entry["interpreter"]: entry["state"] for entry in manager.stats()["interpreters"]}


def wave(manager: InterpreterManager, sessions: int = 8) -> None:
    """So many that want a session at once, in which each sleeps."""

    def nap() -> None:
        with manager.acquire_session(timeout=60) as session:
            session.global_("time", "sleep")(NAP_S)

    together([nap] * sessions)


def grow(manager: InterpreterManager, size: int) -> None:
    def has_grown() -> bool:
        wave(manager)
        return len(manager) >= size

    wait_for(has_grown, lambda: f"the pool to grow: {manager.stats()}", seconds=120, pause=0)


def all_at_once(manager: InterpreterManager, sessions: int) -> None:
    """So many sessions, none of which ends before all have begun."""
    barrier = threading.Barrier(sessions)

    def meet() -> None:
        with manager.acquire_session(timeout=60) as session:
            barrier.wait(60)
            session.global_("time", "sleep")(NAP_S)

    together([meet] * sessions)


@contextmanager
def computing(manager: InterpreterManager, sessions: int, threads: int) -> Iterator[None]:
    """So many sessions, each of which computes on so many threads of its own until the block ends."""
    begun_read, begun = os.pipe()
    stop_read, stop = os.pipe()

    def work() -> None:
        with manager.acquire_session(timeout=60) as session:
            Code(session, COMPUTE)["delegate"](threads, begun, stop_read)

    workers = [threading.Thread(target=work) for _ in range(sessions)]
    try:
        for worker in workers:
            worker.start()
        for _ in range(sessions * threads):
            os.read(begun_read, 1)
        yield
    finally:
        os.close(stop)
        for worker in workers:
            worker.join()
        for descriptor in (begun_read, begun, stop_read):
            os.close(descriptor)


def test_leases_that_use_all_cores_do_not_make_a_pool_grow(elastic: InterpreterManager) -> None:
    before = states(elastic).keys()
    # The leasing threads sleep.
    with computing(elastic, MIN_SIZE, CORES), pytest.raises(LeaseTimeoutError):
        elastic.acquire_session(timeout=1)
    assert not elastic.stats()["growing"]
    assert states(elastic).keys() == before
    assert len(elastic) == MIN_SIZE


@pytest.mark.skipif(CORES == 1, reason="a lease that computes leaves no core unused")
def test_leases_that_leave_cores_unused_make_a_pool_grow() -> None:
    with (
        InterpreterManager(1, max_size=2) as manager,
        computing(manager, 1, 1),
        manager.acquire_session(timeout=120),
    ):
        assert len(manager) == 2


@pytest.mark.long
def test_leases_that_wait_make_a_pool_grow_until_all_wait_at_once(elastic: InterpreterManager) -> None:
    with pytest.raises(LeaseTimeoutError), every_interpreter(elastic):  # at the minimum size, and not longer
        elastic.acquire_session(timeout=0)
    grow(elastic, MAX_SIZE)
    all_at_once(elastic, MAX_SIZE)
    assert len(states(elastic)) == MAX_SIZE
    wave(elastic, 2 * MAX_SIZE)  # at the maximum size it stays
    assert not elastic.stats()["growing"]
    assert len(states(elastic)) == MAX_SIZE


@pytest.mark.long
def test_interpreters_without_use_are_parked_without_models_and_used_again(
    elastic: InterpreterManager, tmp_path: Path
) -> None:
    grow(elastic, MAX_SIZE)
    path = build_scale(tmp_path / "scale.pt", 3)
    package = elastic.load_package(path)
    model = package.load_pickle("model", "model.pkl")
    held = [model.acquire_session(timeout=60) for _ in range(MAX_SIZE)]
    for session in held:
        Code(
            session,
            """
            from interpool.native.inside.parking import when_parked
            import sys
            when_parked(lambda: setattr(sys, "was_parked", True))
            """,
        )
        session.close()
    del held
    wait_for(lambda: len(elastic) == MIN_SIZE, "what is not needed to be parked")
    before = states(elastic)
    parked = {number for number, state in before.items() if state == "parked"}
    assert len(parked) == MAX_SIZE - MIN_SIZE

    grow(elastic, MAX_SIZE)
    assert states(elastic).keys() == before.keys()  # nothing is started
    seen: dict[int, Any] = {}
    sessions = [elastic.acquire_session(timeout=60) for _ in range(MAX_SIZE)]
    for session in sessions:
        code = Code(
            session,
            """
            import sys
            from interpool.native.inside import packages as archive
            found = (getattr(sys, "was_parked", False), len(archive._packages))
            """,
        )
        seen[session.interpreter_id] = code["found"].to_value()
    for session in sessions:
        session.close()
    assert {number for number, found in seen.items() if found == (True, 0)} == parked
    assert {number for number, found in seen.items() if found == (False, 1)} == seen.keys() - parked
    # What was freed is made again.
    assert model(torch.ones(2)).tolist() == [3.0, 3.0]


def test_a_pool_that_cannot_grow_says_so_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_judged_and_slot: object) -> str:
        raise OSError("no room on the device of this test's")

    with InterpreterManager(1, max_size=2) as manager:
        monkeypatch.setattr(Copies, "_slot_copy", refuse)
        said = ""

        def has_said() -> str:
            nonlocal said
            wave(manager, 3)
            said += capfd.readouterr().err
            return said

        wait_for(has_said, "the failure to be logged", pause=0)
        assert "could not start another interpreter" in said
        assert "no room on the device of this test's" in said
        wave(manager, 3)
        assert len(manager) == 1
        assert capfd.readouterr().err == ""  # it does not try at once again
