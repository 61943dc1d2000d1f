"""Every interpreter's Python stacks from outside, whatever it is doing."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from interpool_testing import Code, eventually, every_interpreter

from interpool.native import InterpreterManager, InterpreterSession

SOURCE = """
import ctypes, threading, time

stop = threading.Event()

def outer(seconds):
    inner(time.monotonic() + seconds)

def inner(end):
    while time.monotonic() < end:
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

def hold_the_gil(seconds):
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))
"""


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
    yield
    thread.join(60)
    assert not thread.is_alive()


def test_stacks_show_who_is_where_in_busy_and_idle_interpreters(manager: InterpreterManager) -> None:
    with every_interpreter(manager, 3) as (busy, native, idle):
        outer = Code(busy, SOURCE)["outer"]
        helpers = Code(idle, SOURCE)
        helpers["with_a_thread"]()
        with in_a_thread(outer, 1.0), in_a_thread(native.global_("time", "sleep"), 1.0):
            assert eventually(lambda: "inner (" in manager.dump_stacks())
            start = time.monotonic()
            text = manager.dump_stacks(patience=5)
            assert time.monotonic() - start < 0.9
        computing = paragraph(text, busy)
        assert re.search(r"leased for \d+\.\d s by thread \d+ 'MainThread'", computing)
        # Under the host's name for the thread, innermost first.
        assert re.search(
            r"thread \d+ \"a caller of the test's\"\n    inner \(<string>:\d+\)\n    outer \(<string>:7\)$",
            computing,
        )
        assert "in native code, called by no Python code" in paragraph(text, native)
        waiting = paragraph(text, idle)
        assert "a helper of the model's" in waiting
        assert "Event.wait (" in waiting
        assert "waits (<string>:14)" in waiting
        assert text.count("interpreter ") == len(manager)
        helpers["end"]()


def test_an_interpreter_whose_gil_cannot_be_had_is_named_and_not_waited_for(
    manager: InterpreterManager,
) -> None:
    with every_interpreter(manager, 2) as (stuck, free):
        hold = Code(stuck, SOURCE)["hold_the_gil"]
        with in_a_thread(hold, 1.0):
            time.sleep(0.2)
            start = time.monotonic()
            text = manager.dump_stacks(patience=0.3)
            assert 0.3 <= time.monotonic() - start < 0.8
            assert re.search(
                r"busy in native code that does not let go of the GIL, in thread \d+ \"a caller of the "
                r"test's\": no answer within 0\.3 s",
                paragraph(text, stuck),
            )
            assert "busy in native code" not in paragraph(text, free)
        assert "busy in native code" not in manager.dump_stacks()


@pytest.mark.long
def test_stacks_are_taken_while_threads_come_and_go(manager: InterpreterManager) -> None:
    source = """
    import threading, time
    def churn(seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            threads = [threading.Thread(target=sorted, args=([3, 1],)) for _ in range(8)]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
    """
    with every_interpreter(manager, 2) as sessions:
        churns = [Code(session, source)["churn"] for session in sessions]
        with in_a_thread(churns[0], 10.0), in_a_thread(churns[1], 10.0):
            end = time.monotonic() + 10
            taken = 0
            while time.monotonic() < end:
                assert manager.dump_stacks(5).count("interpreter ") == len(manager)
                taken += 1
        assert taken > 20
