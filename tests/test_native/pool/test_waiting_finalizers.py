"""A model's `__del__` may wait for anything: at most the thread that lets go of the object waits with it."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from interpool_testing import HOLD_THE_GIL, Code, Gate, nobody_leases, printed
from waiting import wait_for

from interpool.native import InterpreterManager
from interpool.native.errors import CallTimeoutError

SOURCE = (
    HOLD_THE_GIL
    + """
import os, threading, time

class Waits:
    def __init__(self, fd):
        self.fd = fd

    def __del__(self):
        os.read(self.fd, 1)

class Copied:
    # Whose copies wait, when they go.

    waits = None

    def __init__(self, fd):
        self.fd = fd

    def __reduce__(self):
        return copy_of, (self.fd,)

    def __call__(self):
        return "here"

def copy_of(fd):
    copy = Copied(fd)
    copy.waits = Waits(fd)
    return copy

heard = []

def tell(text):
    heard.append(text)

def spin():
    while True:
        pass

def hold_the_gil_soon(fd, begun):
    def hold():
        time.sleep(0.2)
        os.write(begun, b"x")
        hold_the_gil(fd)
    threading.Thread(target=hold, daemon=True).start()
"""
)


@pytest.fixture
def pool() -> Iterator[InterpreterManager]:
    with InterpreterManager(1, grace=30) as manager:
        yield manager


def test_letting_go_of_a_session_does_not_wait_for_what_it_held(pool: InterpreterManager) -> None:
    with Gate() as gate:
        session = pool.acquire_session(timeout=60)
        waits = Code(session, SOURCE)["Waits"](gate.fd)
        del session, waits
        gc.collect()  # comes back: the gate is still closed
    wait_for(lambda: nobody_leases(pool), "the lease is not given back")


@pytest.mark.long
def test_letting_go_of_a_session_does_not_wait_for_its_interpreters_gil() -> None:
    said = printed(
        """
        import os, sys
        from interpool import InterpreterManager
        from interpool_testing import Code, Gate, nobody_leases
        from waiting import wait_for

        with InterpreterManager(1) as manager:
            begun, begin = os.pipe()
            with Gate() as gate:
                session = manager.acquire_session()
                code = Code(session, sys.argv[1])
                code["hold_the_gil_soon"](gate.fd, begin)
                os.read(begun, 1)
                del session, code
                print("here")
            wait_for(lambda: nobody_leases(manager), "the lease is not given back")
        """,
        SOURCE,
        timeout=120,
    )
    assert said == "here\n"


def test_calls_are_interrupted_and_messages_arrive_meanwhile(pool: InterpreterManager) -> None:
    pool.register_module_source("waiting_guest", SOURCE)
    with Gate() as gate:
        with pool.acquire_session(timeout=60) as session:
            moved = session.create_movable(session.global_("waiting_guest", "Copied")(gate.fd))
        assert moved() == "here"
        moved.unload()  # by the interpreter's home thread, which waits for the gate from now on
        with (
            pool.acquire_session(timeout=60, call_limit=0.2) as limited,
            pytest.raises(CallTimeoutError, match="the session goes on"),
        ):
            Code(limited, SOURCE)["spin"]()
        pool.tell_all("waiting_guest", "tell", "a word")
        with pool.acquire_session(timeout=60) as session:
            heard = session.global_("waiting_guest", "heard")
            wait_for(lambda: heard.to_value() == ["a word"], "nothing was heard")
        del moved
