"""Calls with a time limit: stopped where they can be, left behind where they cannot."""

from __future__ import annotations

import functools
import itertools
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from archives import build_package
from interpool_testing import HOLD_THE_GIL, Code, Gate, Sign, every_interpreter, nobody_leases, pool_of
from waiting import wait_for

from interpool.native import InterpreterManager
from interpool.native.errors import (
    CallTimeoutError,
    InterpreterRetiredError,
    RemoteError,
    SessionClosedError,
    SessionError,
)

LIMIT_S = 0.5
GRACE_S = 4.0  # what is interrupted comes back in it, on a busy machine too
SHORT_GRACE_S = 0.8  # what does not come back is not waited for longer

SOURCE = (
    HOLD_THE_GIL
    + """
import threading, time, torch

def spin(seconds=600):
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
        spin()
    except BaseException:
        spin()

def compute():
    x = torch.ones(200, 200)
    while True:
        x = (x @ x).softmax(0)

def clean_up():
    try:
        spin()
    finally:
        cleaned.append(True)

cleaned = []

class Dies:
    def __del__(self):
        spin()
"""
)


@pytest.fixture(scope="module")
def pool() -> Iterator[InterpreterManager]:
    """Where calls past their limit are interrupted, and come back."""
    with InterpreterManager(2, grace=GRACE_S) as manager:
        yield manager
        assert not retired(manager)


# Where calls do not come back: the pool that loses its interpreters.
losing = pool_of(2, grace=SHORT_GRACE_S)


def is_whole(manager: InterpreterManager) -> bool:
    """Whether there are two interpreters to be leased again, after one was lost."""
    return len(manager) == 2 and not manager.stats()["growing"]


def took(work: Callable[[], Any]) -> float:
    start = time.monotonic()
    work()
    return time.monotonic() - start


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
        with pytest.raises(SessionClosedError):
            number("1")


@pytest.mark.parametrize("name", ["spin", "go_on_after_errors", "swallow_once", "compute"])
def test_python_code_past_its_limit_is_stopped_and_the_interpreter_goes_on(
    pool: InterpreterManager, name: str
) -> None:
    with pool.acquire_session(timeout=60, call_limit=LIMIT_S) as session:
        code = Code(session, SOURCE)
        function = code[name]
        kept = session.from_value([1, 2])
        with pytest.raises(CallTimeoutError) as raised:
            function()
        complaint = str(raised.value)
        number = session.interpreter_id
        assert f"{name} in interpreter {number} took longer than its limit of 0.5 s" in complaint
        assert f"{'spin' if name != 'compute' else name} (<string>:" in complaint
        assert kept.to_value() == [1, 2]
        assert code.call("spin", 0.001) == 0.001
    assert issubclass(CallTimeoutError, SessionError)
    states = {entry["interpreter"]: entry["state"] for entry in pool.stats()["interpreters"]}
    assert states[number] == "free"


def test_no_later_call_is_hit_by_what_was_meant_for_an_earlier_one(pool: InterpreterManager) -> None:
    limit, outcomes = 0.1, Counter[str]()

    def outcome(work: Callable[[], Any]) -> str:
        start = time.monotonic()
        try:
            work()
        except CallTimeoutError:
            assert time.monotonic() - start >= limit  # its own limit, not another one's
            return "late"
        return "in time"

    pool.register_module_source("limits_guest", SOURCE)
    with every_interpreter(pool) as sessions:
        for session in sessions:
            session.global_("limits_guest", "spin")  # imported without a limit
    with pool.acquire_session(timeout=60, call_limit=limit) as session:
        spin = session.global_("limits_guest", "spin")
        # Right at the limit: some are over as the interruption is on its way.
        for i in itertools.count():
            outcomes[outcome(lambda i=i: spin(limit - 0.0015 + 0.0001 * (i % 30)))] += 1  # type: ignore[misc]
            outcome(lambda: spin(0.0))
            outcome(lambda: session.from_value(1).to_value())
            if i >= 30 and min(outcomes["late"], outcomes["in time"]) >= 3:
                break


def test_an_end_that_takes_too_long_is_stopped_too(pool: InterpreterManager) -> None:
    session = pool.acquire_session(timeout=60, call_limit=LIMIT_S)
    dies = Code(session, SOURCE)["Dies"]()
    assert LIMIT_S <= took(session.close) < 60  # of the ten minutes that it wants
    assert dies is not None
    wait_for(lambda: nobody_leases(pool), "the session's end")


def retired(manager: InterpreterManager) -> set[int]:
    return {entry["interpreter"] for entry in manager.stats()["interpreters"] if entry["state"] == "retired"}


@pytest.mark.parametrize(
    "how", ["native code without the GIL", "native code with the GIL", "the wait for it"]
)
def test_a_call_that_does_not_come_back_costs_only_its_interpreter(
    losing: InterpreterManager, how: str
) -> None:
    wait_for(lambda: is_whole(losing), "the interpreter in place of a lost one")
    known = {entry["interpreter"] for entry in losing.stats()["interpreters"]}
    before = retired(losing)
    with (
        Gate() as gate,
        losing.acquire_session(timeout=60) as other,
        losing.acquire_session(timeout=60, call_limit=LIMIT_S) as session,
        ThreadPoolExecutor(1) as executor,
    ):
        length = other.global_("builtins", "len")
        code = Code(session, SOURCE)
        kept = session.from_value([1, 2])
        held = code["hold_the_gil"]
        if how == "native code without the GIL":
            read = session.global_("os", "read")
            stuck = functools.partial(read, gate.fd, 1)
        else:
            stuck = functools.partial(held, gate.fd)
        if how == "the wait for it":
            # A thread of the model's holds the GIL; the call itself never begins.
            begun = Sign()
            session.global_("_thread", "start_new_thread")(held, (gate.fd, begun.fd))
            begun.wait()
            stuck = kept.to_value
        waiter = executor.submit(lambda: losing.acquire_session(timeout=60))

        # All this while the gate is shut: nothing waits for the call to come back.
        start = time.monotonic()
        with pytest.raises(CallTimeoutError, match=r"did not come back within 0\.8 s more"):
            stuck()
        assert time.monotonic() - start >= LIMIT_S + SHORT_GRACE_S

        gone = session.interpreter_id
        assert retired(losing) == before | {gone}
        for use in (
            kept.to_value,
            held,
            lambda: session.from_value(1),
            lambda: length(kept),
        ):
            with pytest.raises(InterpreterRetiredError, match=f"interpreter {gone} was retired"):
                use()
        assert not session.is_open

        # Nothing that concerns all interpreters waits for the lost one, however patient.
        assert length("abc").to_value() == 3
        start = time.monotonic()
        losing.forget("a model")
        losing._pool.tell_all("builtins", "len", [])
        assert f"interpreter {gone}: retired" in losing.dump_stacks(patience=120)
        assert time.monotonic() - start < 60

        # Who waited gets the one that is started in its place.
        with waiter.result(60) as replaced:
            assert replaced.interpreter_id not in known
            assert replaced.global_("builtins", "len")("ab").to_value() == 2
    assert is_whole(losing)
    # The gate is open, and a GIL free again: what still waited for it finds a session that has ended.
    kept = held = stuck = code = None  # type: ignore[assignment]
    time.sleep(0.5)
    with every_interpreter(losing) as sessions:
        assert gone not in {session.interpreter_id for session in sessions}


def test_a_thread_that_has_been_in_a_lost_interpreter_can_end(losing: InterpreterManager) -> None:
    wait_for(lambda: is_whole(losing), "the interpreter in place of a lost one")
    go = threading.Event()
    visited: list[int] = []

    def visit() -> None:
        with losing.acquire_session(timeout=60, affinity="lost") as session:
            session.from_value(1)
            number = session.interpreter_id
        visited.append(number)  # it is free again
        go.wait(60)

    thread = threading.Thread(target=visit)
    thread.start()
    wait_for(lambda: visited, "the visit")
    with Gate() as gate:  # shut until the thread has ended
        with losing.acquire_session(timeout=60, affinity="lost", call_limit=LIMIT_S) as session:
            assert session.interpreter_id == visited[0]
            with pytest.raises(CallTimeoutError):
                Code(session, SOURCE)["hold_the_gil"](gate.fd)
        assert visited[0] in retired(losing)
        task = Path(f"/proc/self/task/{thread.native_id}")
        assert task.exists()
        go.set()
        wait_for(lambda: not task.exists(), "the thread's end")


def test_an_import_is_not_interrupted_and_its_module_is_whole(
    pool: InterpreterManager, tmp_path: Path
) -> None:
    (tmp_path / "takes_long.py").write_text(
        textwrap.dedent(
            """
            import builtins, time

            builtins.times_imported = getattr(builtins, "times_imported", 0) + 1
            end = time.monotonic() + 1.5
            while time.monotonic() < end:
                pass
            whole = True
            """
        )
    )
    source = """
    import sys
    def run(folder):
        sys.path.append(folder)
        import takes_long
        while True:
            pass
    def look():
        import builtins, takes_long
        return builtins.times_imported, takes_long.whole
    """
    with pool.acquire_session(timeout=60, call_limit=LIMIT_S) as session:
        with pytest.raises(CallTimeoutError, match="the session goes on") as caught:
            Code(session, source)["run"](str(tmp_path))
        assert "takes_long" in str(caught.value)
        assert Code(session, source).call("look") == (1, True)


FAMILY = """
import sys, time, torch

loaded = []
loader = type(sys.modules["torch.func"].__loader__)
get_code = loader.get_code

def take_long(self, name):
    loaded.append(name)
    end = time.monotonic() + 1.5
    while len(loaded) == 1 and time.monotonic() < end:
        pass
    return get_code(self, name)

def run():
    loader.get_code = take_long
    torch.vmap
    while True:
        pass

def look():
    return loaded.count(loaded[0]), torch.vmap(torch.sin)(torch.zeros(2)).tolist()
"""


@pytest.mark.long
def test_a_deferred_import_of_torch_is_not_interrupted(
    pool: InterpreterManager,  # has had the first interpreter, which may import all of torch
) -> None:
    with InterpreterManager(1, grace=60) as manager:
        manager.register_module_source("late_guest", FAMILY)
        with manager.acquire_session(timeout=60) as session:
            session.global_("late_guest", "run")  # imported without a limit
        with manager.acquire_session(timeout=60, call_limit=LIMIT_S) as session:
            with pytest.raises(CallTimeoutError, match="the session goes on") as caught:
                session.global_("late_guest", "run")()
            assert "_Family.import_all (" in str(caught.value)
        with manager.acquire_session(timeout=60) as session:
            assert session.global_("late_guest", "look")().to_value() == (1, [0.0, 0.0])


def test_an_import_from_an_archive_is_not_interrupted_and_its_module_is_whole(
    pool: InterpreterManager, tmp_path: Path
) -> None:
    path = build_package(
        tmp_path / "lazy.pt",
        {
            "lazy_model.py": """
                times = []

                class Lazy:
                    def run(self):
                        import lazy_part
                        while True:
                            pass

                    def look(self):
                        import lazy_part
                        return len(times), lazy_part.whole

                def make():
                    return Lazy()
                """,
            "lazy_part.py": """
                import time
                from lazy_model import times

                times.append(1)
                end = time.monotonic() + 1.5
                while time.monotonic() < end:
                    pass
                whole = True
                """,
        },
        "lazy_model:make",
        extern=("time",),
    )
    entry = "interpool.native.inside.packages", "load_object"
    with every_interpreter(pool) as sessions:
        for each in sessions:
            each.global_(*entry)(str(path), "model", "model.pkl")  # without a limit
    with pool.acquire_session(timeout=60, call_limit=LIMIT_S) as session:
        model = session.global_(*entry)(str(path), "model", "model.pkl")
        with pytest.raises(CallTimeoutError, match="the session goes on") as caught:
            model.attr("run")()
        assert "lazy_part" in str(caught.value)
        assert model.attr("look")().to_value() == (1, True)


def test_an_import_that_does_not_end_costs_the_interpreter(
    losing: InterpreterManager, tmp_path: Path
) -> None:
    (tmp_path / "never_imported.py").write_text("while True:\n    pass\n")
    source = """
    import sys
    def run(folder):
        sys.path.append(folder)
        import never_imported
    """
    wait_for(lambda: is_whole(losing), "it is not whole again")
    with losing.acquire_session(timeout=60, call_limit=LIMIT_S) as session:
        code = Code(session, source)
        with pytest.raises(CallTimeoutError, match="it is in an import, which is not interrupted"):
            code["run"](str(tmp_path))
    with pytest.raises(InterpreterRetiredError):
        code["run"](str(tmp_path))


def test_a_call_that_is_stopped_cleans_up(pool: InterpreterManager) -> None:
    with pool.acquire_session(timeout=60, call_limit=LIMIT_S) as session:
        code = Code(session, SOURCE)
        function = code["clean_up"]

        def run() -> None:
            with pytest.raises(CallTimeoutError, match="clean_up in interpreter"):
                function()

        assert took(run) >= LIMIT_S
        assert code["cleaned"].to_value() == [True]
