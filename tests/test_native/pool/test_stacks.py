"""Every interpreter's Python stacks from outside, in every state."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from interpool_testing import HOLD_THE_GIL, Code, Gate, Sign, every_interpreter
from waiting import wait_for

from interpool.native import InterpreterManager, InterpreterSession

SOURCE = (
    HOLD_THE_GIL
    + """
import os, threading

stop = threading.Event()

def outer(fd):
    threading.current_thread()  # gives the host's thread a name of its own in here, too
    inner(fd)

def inner(fd):
    os.set_blocking(fd, False)
    while True:
        try:
            return os.read(fd, 1)
        except BlockingIOError:
            sum(range(100))

def waits():
    stop.wait(60)

def with_a_thread():
    global helper
    helper = threading.Thread(target=waits, name="a helper of the model's")
    helper.start()

def end():
    stop.set()
    helper.join()
"""
)

HELD = "busy in native code that does not release the GIL"


def paragraph(text: str, session: InterpreterSession) -> str:
    found = re.search(
        rf"^interpreter {session.interpreter_id}:.*?(?=\n\n|\Z)", text, re.MULTILINE | re.DOTALL
    )
    assert found, text
    return found.group()


@contextmanager
def in_a_thread(work: object, *args: object) -> Iterator[None]:
    thread = threading.Thread(target=work, args=args, name="a caller of the test's")  # type: ignore[arg-type]
    thread.start()
    try:
        yield
    finally:
        thread.join(60)
    assert not thread.is_alive()


def test_stacks_show_the_frames_of_busy_and_idle_interpreters(manager: InterpreterManager) -> None:
    compute, sleep = Gate(), Gate()
    with every_interpreter(manager, 3) as (busy, native, idle):
        outer = Code(busy, SOURCE)["outer"]
        helpers = Code(idle, SOURCE)
        helpers["with_a_thread"]()
        read = native.global_("os", "read")
        with (
            in_a_thread(outer, compute.fd),
            in_a_thread(read, sleep.fd, 1),
            compute,
            sleep,
        ):
            begun = ("inner (", "in native code, called by no Python code", "Event.wait (")

            def have_begun() -> bool:
                stacks = manager.dump_stacks()
                return all(each in stacks for each in begun)

            wait_for(have_begun, "the calls to begin")
            start = time.monotonic()
            # While both gates are shut: it waits for no call, nor for as long as the patience.
            text = manager.dump_stacks(patience=120)
            assert time.monotonic() - start < 60
        computing = paragraph(text, busy)
        assert re.search(r"leased for \d+\.\d s by thread \d+ 'MainThread'", computing)
        # Under the host's name for the thread, innermost first.
        assert re.search(
            r"thread \d+ \"a caller of the test's\"\n    inner \(<string>:\d+\)\n"
            r"    outer \(<string>:18\)(?=\n  thread|\Z)",
            computing,
        )
        assert "in native code, called by no Python code" in paragraph(text, native)
        waiting = paragraph(text, idle)
        assert "a helper of the model's" in waiting
        assert "Event.wait (" in waiting
        assert "waits (<string>:29)" in waiting
        serving = re.findall(r"^interpreter \d+: (?!retired)", text, re.MULTILINE)
        assert len(serving) == len(manager)
        helpers["end"]()


def test_an_interpreter_whose_gil_cannot_be_had_is_named_and_not_waited_for(
    manager: InterpreterManager,
) -> None:
    gate = Gate()
    with every_interpreter(manager, 2) as (stuck, free):
        hold = Code(stuck, SOURCE)["hold_the_gil"]
        begun = Sign()
        with in_a_thread(hold, gate.fd, begun.fd), gate:
            begun.wait()
            start = time.monotonic()
            text = manager.dump_stacks(patience=1.5)  # for the free one to answer in
            assert time.monotonic() - start >= 1.5
            assert re.search(
                rf"{HELD}, in thread \d+ \"a caller of the "
                r"test's\": no answer within 1\.5 s",
                paragraph(text, stuck),
            )
            assert HELD not in paragraph(text, free)
        assert HELD not in manager.dump_stacks(patience=60)


def test_a_thread_with_a_name_that_is_no_unicode_is_among_the_stacks(manager: InterpreterManager) -> None:
    source = """
    import threading
    done = threading.Event()
    threading.Thread(target=done.wait, name="odd \\udc80", daemon=True).start()
    """
    with manager.acquire_session() as session:
        code = Code(session, source)
        assert "odd " in manager.dump_stacks()
        code["done"].attr("set")()


@pytest.mark.long
def test_stacks_are_taken_while_threads_come_and_go(manager: InterpreterManager) -> None:
    source = """
    import threading
    def churn():
        for _ in range(1000):
            threads = [threading.Thread(target=sorted, args=([3, 1],)) for _ in range(8)]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
    """
    with every_interpreter(manager, 2) as sessions:
        codes = [Code(session, source) for session in sessions]
        with in_a_thread(codes[0]["churn"]), in_a_thread(codes[1]["churn"]):
            for _ in range(500):
                assert manager.dump_stacks(60).count("interpreter ") == len(manager)
