"""A model whose threads may run while another one is served shares its interpreter with none."""

from __future__ import annotations

import asyncio
import multiprocessing.pool
import queue
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import otf
import pytest
from interpool_testing import pool_of
from ordinary_models import ANSWERS, asked, loaded
from waiting import wait_for

from interpool.handler.backend import model_threads, stdio
from interpool.handler.host.service_entry import SERVICE_MODULE
from interpool.native import InterpreterManager

MODEL = "/models/threads"


def _started(stack: ExitStack, function: Callable[[], object]) -> None:
    """A thread that runs the function, which must return when the stack ends."""
    thread = threading.Thread(target=function, name="worker", daemon=True)
    stack.callback(thread.join)
    thread.start()


def _consumer(stack: ExitStack) -> None:
    work: queue.Queue[int] = queue.Queue()
    _started(stack, work.get)
    stack.callback(work.put, 1)


def _executor(stack: ExitStack) -> None:
    stack.enter_context(ThreadPoolExecutor(2)).submit(int).result()


def _thread_pool(stack: ExitStack) -> None:
    stack.enter_context(multiprocessing.pool.ThreadPool(2)).map(abs, [1])


def _loop(stack: ExitStack) -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    stack.callback(loop.close)
    _started(stack, loop.run_forever)
    stack.callback(loop.call_soon_threadsafe, loop.stop)
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result()
    return loop


def _ticker(stack: ExitStack) -> None:
    end = threading.Event()
    _started(stack, lambda: end.wait(60))
    stack.callback(end.set)


def _sleeper(stack: ExitStack) -> None:
    end: list[int] = []

    def sleep() -> None:
        while not end:
            time.sleep(0.01)

    _started(stack, sleep)
    stack.callback(end.append, 1)


def _executor_at_work(stack: ExitStack) -> None:
    end = threading.Event()
    stack.enter_context(ThreadPoolExecutor(1, "worker")).submit(end.wait, 60)
    stack.callback(end.set)


def _loop_with_a_timer(stack: ExitStack) -> None:
    loop = _loop(stack)
    loop.call_soon_threadsafe(loop.call_later, 60, print)


def _loop_with_a_pipe(stack: ExitStack) -> None:
    ends = socket.socketpair()
    for end in ends:
        stack.enter_context(end)
    loop = _loop(stack)
    loop.call_soon_threadsafe(loop.add_reader, ends[0], print)


@pytest.fixture
def _noted_threads() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", threading.Thread.start)
        stdio._note_threads()
        yield


def _at_work(start: Callable[[ExitStack], object], model: str = MODEL) -> str:
    with ExitStack() as stack:
        with stdio.to_worker(-1, -1, MODEL):
            start(stack)
        return model_threads.at_work(model, 0.5)


@pytest.mark.usefixtures("_noted_threads")
@pytest.mark.parametrize("start", [_consumer, _executor, _thread_pool, _loop])
def test_threads_that_wait_for_work_of_their_model_are_not_at_work(
    start: Callable[[ExitStack], object],
) -> None:
    assert _at_work(start) == ""


@pytest.mark.usefixtures("_noted_threads")
@pytest.mark.parametrize(
    "start", [_ticker, _sleeper, _executor_at_work, _loop_with_a_timer, _loop_with_a_pipe]
)
def test_threads_that_may_run_at_any_time_are_named(start: Callable[[ExitStack], object]) -> None:
    assert re.fullmatch(
        r"it has threads that go on when no call runs: worker\S* \(/\S+\.py:\d+\)", _at_work(start)
    )
    assert _at_work(start, "/models/another") == ""


TICKS = """
import threading, time, torch
torch.set_default_dtype(torch.float64)

def tick():
    while True:
        SEEN.add(str(torch.ones(1).dtype))
        time.sleep(0.001)

SEEN = set()
THREAD = threading.Thread(target=tick, daemon=True, name="ticker")
"""
STARTS = {
    "threading": "THREAD.start()",
    "_thread": "import _thread; _thread.start_new_thread(tick, ())",
    "native": """
import ctypes
FUNCTION = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(lambda _: tick())
assert ctypes.CDLL(None).pthread_create(ctypes.byref(ctypes.c_ulong()), None, FUNCTION, None) == 0
""",
}


manager = pool_of(1, preload=[SERVICE_MODULE])


def _owner(manager: InterpreterManager, number: int) -> str | None:
    (entry,) = [one for one in manager.stats()["interpreters"] if one["interpreter"] == number]
    wait_for(lambda: len(manager) == 1, "another one for those that share")
    owner: str | None = entry["owner"]
    return owner


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_a_model_that_is_loaded_with_such_a_thread_gets_the_interpreter_to_itself(
    manager: InterpreterManager, tmp_path: Path, start: str
) -> None:
    with manager.acquire_session() as session:
        loaded(session, tmp_path / "plain", f"def answer(): return 'plain'\n{ANSWERS}")
        code = f"{TICKS}\n{start}\ndef answer(): time.sleep(0.05); return str(sorted(SEEN))\n{ANSWERS}"
        ticks = loaded(session, tmp_path / "ticks", code)
        assert asked(session, ticks) == "['torch.float64']"
        number = session.interpreter_id
    assert _owner(manager, number) == str(tmp_path / "ticks")


def test_a_call_that_leaves_such_a_thread_meets_no_neighbour(
    manager: InterpreterManager, tmp_path: Path
) -> None:
    with manager.acquire_session() as session:
        plain = loaded(session, tmp_path / "plain", f"def answer(): return 'plain'\n{ANSWERS}")
        code = f"{TICKS}\ncalls = []\ndef answer():\n    calls.append(1)\n"
        code += f"    if len(calls) == 4: THREAD.start()\n    return len(calls)\n{ANSWERS}"
        ticks = loaded(session, tmp_path / "ticks", code)
        for number in range(1, 5):
            assert asked(session, plain) == "plain"
            assert asked(session, ticks) == str(number)
        assert session.global_("builtins", "repr")(plain(otf.predict(b""))).to_value() == "None"
        number = session.interpreter_id
    assert _owner(manager, number) == str(tmp_path / "ticks")
