"""Calls with a time limit: stopped where they can be, left behind where they cannot."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from interpool_testing import Code, eventually, together

from interpool.native import InterpreterManager
from interpool.native.errors import (
    CallTimeoutError,
    InterpreterRetiredError,
    RemoteError,
    SessionClosedError,
    SessionError,
)

LIMIT_S = 0.2
GRACE_S = 0.8

SOURCE = """
import ctypes, threading, time, torch

def spin(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
    return seconds

def go_on_after_errors():
    while True:
        try:
            spin(0.001)
        except Exception:
            pass

def swallow_once():
    try:
        spin(60)
    except BaseException:
        spin(60)

def compute():
    x = torch.ones(200, 200)
    while True:
        x = (x @ x).softmax(0)

def clean_up():
    try:
        spin(60)
    finally:
        cleaned.append(True)

cleaned = []

class Dies:
    def __del__(self):
        spin(60)

def hold_the_gil(seconds):
    ctypes.PyDLL(None).sleep(seconds)
"""


@pytest.fixture(scope="module")
def pool() -> Iterator[InterpreterManager]:
    with InterpreterManager(2, grace=GRACE_S) as manager:
        yield manager
        assert eventually(lambda: len(manager) == 2, timeout=30)


def took(work: Callable[[], Any]) -> float:
    start = time.monotonic()
    work()
    return time.monotonic() - start


def past_the_limit(work: Callable[[], Any], message: str) -> None:
    def run() -> None:
        with pytest.raises(CallTimeoutError, match=message):
            work()

    assert LIMIT_S <= took(run) < LIMIT_S + GRACE_S / 2


def test_within_its_limit_a_session_does_what_others_do(pool: InterpreterManager) -> None:
    with pool.acquire_session(timeout=60, call_limit=60) as session:
        code = Code(session, SOURCE)
        assert code.call("spin", 0.001) == 0.001
        number = session.global_("builtins", "int")
        assert number("ff", base=16).to_value() == 255
        with pytest.raises(RemoteError, match="ValueError"):
            number("x")
        ones = session.global_("torch", "ones")(3)
        assert session.global_("torch", "add")(ones, torch.ones(3)).to_value().tolist() == [2.0] * 3
        # One thread per session: what is kept per thread stays from call to call.
        ident = session.global_("threading", "get_ident")
        assert len({ident().to_value() for _ in range(5)}) == 1
    assert not session.is_open
    for wait in (0.0, 0.1):  # with its thread about to end, and gone
        time.sleep(wait)
        start = time.monotonic()
        with pytest.raises(SessionClosedError):
            number("1")
        assert time.monotonic() - start < 5


@pytest.mark.parametrize("name", ["spin", "go_on_after_errors", "swallow_once", "compute"])
def test_python_code_past_its_limit_is_stopped_and_the_interpreter_goes_on(
    pool: InterpreterManager, name: str
) -> None:
    with pool.acquire_session(timeout=60, call_limit=LIMIT_S) as session:
        code = Code(session, SOURCE)
        function = code[name]
        kept = session.from_value([1, 2])
        with pytest.raises(CallTimeoutError) as raised:
            function(*([60] if name == "spin" else []))
        told = str(raised.value)
        number = session.interpreter_id
        assert f"{name} in interpreter {number} took longer than its limit of 0.2 s" in told
        assert f"{'spin' if name != 'compute' else name} (<string>:" in told
        assert kept.to_value() == [1, 2]
        assert code.call("spin", 0.001) == 0.001
    assert issubclass(CallTimeoutError, SessionError)
    states = {seat["interpreter"]: seat["state"] for seat in pool.stats()["interpreters"]}
    assert states[number] == "free"


def test_a_call_that_is_stopped_cleans_up(pool: InterpreterManager) -> None:
    with pool.acquire_session(timeout=60, call_limit=LIMIT_S) as session:
        code = Code(session, SOURCE)
        function = code["clean_up"]
        past_the_limit(function, "clean_up in interpreter")
        assert code["cleaned"].to_value() == [True]


def test_no_later_call_is_hit_by_what_was_meant_for_an_earlier_one(pool: InterpreterManager) -> None:
    late = 0
    with pool.acquire_session(timeout=60, call_limit=0.02) as session:
        spin = Code(session, SOURCE)["spin"]
        # Right at the limit: some are over as the interruption is on its way.
        for i in range(60):
            try:
                spin(0.0185 + 0.00005 * i)
            except CallTimeoutError:
                late += 1
            assert spin(0.0).to_value() == 0.0
            assert session.from_value(i).to_value() == i
    assert 0 < late < 60


def test_each_of_several_threads_calls_has_its_own_limit(pool: InterpreterManager) -> None:
    with pool.acquire_session(timeout=60, call_limit=LIMIT_S) as session:
        spin = Code(session, SOURCE)["spin"]
        # Together they take longer than the limit, and each waits for its turn.
        results = together([lambda: spin(0.1).to_value() for _ in range(4)])
        assert results == [0.1] * 4
        outcomes = []

        def call(seconds: float) -> None:
            try:
                outcomes.append(spin(seconds).to_value())
            except CallTimeoutError:
                outcomes.append("late")

        together([lambda s=s: call(s) for s in (60, 0.01, 60, 0.02)])  # type: ignore[misc]
        assert sorted(map(str, outcomes)) == ["0.01", "0.02", "late", "late"]


def test_an_end_that_takes_too_long_is_stopped_too(pool: InterpreterManager) -> None:
    session = pool.acquire_session(timeout=60, call_limit=LIMIT_S)
    dies = Code(session, SOURCE)["Dies"]()
    assert LIMIT_S <= took(session.close) < LIMIT_S + GRACE_S / 2
    assert dies is not None
    assert eventually(lambda: not any(seat["leased"] for seat in pool.stats()["interpreters"]))


def test_a_session_with_a_limit_that_nobody_holds_ends_while_the_host_goes_on(
    pool: InterpreterManager,
) -> None:
    session = pool.acquire_session(timeout=60, call_limit=60)
    slow = Code(session, "import time\nclass Slow:\n    def __del__(self): time.sleep(0.5)")["Slow"]()
    start = time.monotonic()
    del session, slow
    assert time.monotonic() - start < 0.3
    assert eventually(lambda: not any(seat["leased"] for seat in pool.stats()["interpreters"]))


def retired(pool: InterpreterManager) -> set[int]:
    return {seat["interpreter"] for seat in pool.stats()["interpreters"] if seat["state"] == "retired"}


@pytest.mark.parametrize(
    "how", ["native code without the GIL", "native code with the GIL", "the wait for it"]
)
def test_a_call_that_does_not_come_back_costs_its_interpreter_and_nobody_else(
    pool: InterpreterManager, how: str
) -> None:
    assert eventually(lambda: len(pool) == 2, timeout=30)
    before = retired(pool)
    with (
        pool.acquire_session(timeout=60) as other,
        pool.acquire_session(timeout=60, call_limit=LIMIT_S) as session,
        ThreadPoolExecutor(1) as executor,
    ):
        length = other.global_("builtins", "len")
        code = Code(session, SOURCE)
        kept = session.from_value([1, 2])
        if how == "native code without the GIL":
            stuck, argument = session.global_("time", "sleep"), 15
        else:
            stuck, argument = code["hold_the_gil"], 4
        if how == "the wait for it":
            # A thread of the model's holds the GIL; the call itself never begins.
            session.global_("_thread", "start_new_thread")(stuck, (argument,))
            assert eventually(lambda: "does not let go of the GIL" in pool.dump_stacks(patience=0.2))
            stuck, argument = kept, 0
        waiter = executor.submit(lambda: pool.acquire_session(timeout=60))

        start = start_of_call = time.monotonic()
        with pytest.raises(CallTimeoutError, match=r"did not come back within 0\.8 s more"):
            stuck(argument) if stuck is not kept else kept.to_value()
        assert LIMIT_S + GRACE_S <= time.monotonic() - start < LIMIT_S + GRACE_S + 2

        gone = session.interpreter_id
        assert retired(pool) == before | {gone}
        for use in (
            kept.to_value,
            stuck,
            lambda: session.from_value(1),
            lambda: length(kept),
        ):
            with pytest.raises(InterpreterRetiredError, match=f"interpreter {gone} was retired"):
                use()
        assert not session.is_open

        # Nothing that concerns all interpreters waits for the lost one.
        start = time.monotonic()
        assert length("abc").to_value() == 3
        pool.forget("a model")
        pool._pool.tell_all("builtins", "len", [])
        assert f"interpreter {gone}: retired" in pool.dump_stacks()
        assert time.monotonic() - start < 1

        # Who waited gets the one that is started in its place.
        with waiter.result(60) as replaced:
            assert replaced.interpreter_id > gone
            assert replaced.global_("builtins", "len")("ab").to_value() == 2
    assert len(pool) == 2
    assert not pool.stats()["growing"]
    if how != "native code without the GIL":
        # The GIL is free now; what still waited for it finds a session that has ended.
        kept = stuck = code = None  # type: ignore[assignment]
        time.sleep(max(0.0, start_of_call + 4.5 - time.monotonic()))


def test_a_thread_that_has_been_in_a_lost_interpreter_can_end(pool: InterpreterManager) -> None:
    assert eventually(lambda: len(pool) == 2, timeout=30)
    go = threading.Event()
    visited: list[int] = []

    def visit() -> None:
        with pool.acquire_session(timeout=60, affinity="lost") as session:
            session.from_value(1)
            visited.append(session.interpreter_id)
        go.wait(60)

    thread = threading.Thread(target=visit)
    thread.start()
    assert eventually(lambda: bool(visited))
    with pool.acquire_session(timeout=60, affinity="lost", call_limit=LIMIT_S) as session:
        assert session.interpreter_id == visited[0]
        with pytest.raises(CallTimeoutError):
            Code(session, SOURCE)["hold_the_gil"](15)
    assert visited[0] in retired(pool)
    task = Path(f"/proc/self/task/{thread.native_id}")
    assert task.exists()
    go.set()
    assert eventually(lambda: not task.exists(), timeout=5)


@pytest.mark.parametrize("limit", [0, -1.0, float("nan")])
def test_a_limit_that_is_no_duration_is_a_mistake(pool: InterpreterManager, limit: float) -> None:
    with pytest.raises(ValueError, match="a call limit is a positive number of seconds"):
        pool.acquire_session(call_limit=limit)


@pytest.mark.long
def test_growing_parking_limits_and_stacks_go_together() -> None:
    with InterpreterManager(2, ceiling=5, park_after=0.5, grace=0.3) as manager:
        end = time.monotonic() + 30
        counts: Counter[str] = Counter()

        def work(seed: int) -> None:
            choose = random.Random(seed)
            while time.monotonic() < end:
                limit = choose.choice([None, 0.02, 0.05])
                try:
                    with manager.acquire_session(timeout=60, call_limit=limit) as session:
                        code = Code(session, SOURCE)
                        for _ in range(choose.randrange(5)):
                            seconds = choose.choice([0.0, 0.0, 0.01, 0.02, 0.05, 0.06])
                            if choose.random() < 0.5:
                                assert code.call("spin", seconds) == seconds
                            else:
                                session.global_("time", "sleep")(seconds)
                        if limit and choose.random() < 0.01:
                            code["hold_the_gil"](2)
                        counts["done"] += 1
                except (CallTimeoutError, InterpreterRetiredError) as error:
                    counts[type(error).__name__] += 1
                if choose.random() < 0.05:
                    time.sleep(choose.random())

        def look() -> None:
            while time.monotonic() < end:
                text = manager.dump_stacks(0.2)
                assert text.startswith("interpreter ")
                manager._pool.tell_all("builtins", "len", [])
                time.sleep(0.05)

        together([*[lambda i=i: work(i) for i in range(10)], look], timeout=120)  # type: ignore[misc]
        assert counts["done"] > 100
        assert counts["CallTimeoutError"] > 20
        assert eventually(lambda: len(manager) == 2 and not manager.stats()["growing"], timeout=30)
        states = Counter(seat["state"] for seat in manager.stats()["interpreters"])
        assert states["leased"] == 0
        assert states["retired"] > 0
        for _ in range(4):
            with manager.acquire_session(timeout=60, call_limit=5) as session:
                assert session.global_("builtins", "len")("abc").to_value() == 3
