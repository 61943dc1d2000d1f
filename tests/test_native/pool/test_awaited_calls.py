"""Movable objects that an event loop calls: many at once, cancelled, timed out."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import torch
import uvloop
from interpool_testing import every_interpreter
from waiting import wait_for

from interpool.native import InterpreterManager, MovableObject
from interpool.native.errors import ConversionError, RemoteError

SOURCE = """
import time

import torch

begun = []


class Called:
    def __call__(self, what, value=None):
        begun.append(what)
        return getattr(self, what)(value)

    def same(self, value):
        return value

    def double(self, value):
        return value * 2

    def fail(self, value):
        raise ValueError(f"not {value}")

    def loop(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            pass
        return "whole"

    def modes(self, _):
        return torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    def begun(self, what):
        return begun.count(what)

    def unsendable(self, _):
        return object()
"""
RUNNERS = pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(scope="module")
def called(manager: InterpreterManager) -> MovableObject:
    manager.register_module_source("awaited_guest", SOURCE)
    with manager.acquire_session() as session:
        return session.create_movable(session.global_("awaited_guest", "Called")())


def _begun(called: MovableObject, manager: InterpreterManager, what: str) -> int:
    """How often it has begun, in all interpreters."""
    with every_interpreter(manager) as sessions:
        return sum(int(session.from_movable(called)("begun", what).to_value()) for session in sessions)


@RUNNERS
def test_a_thousand_calls_at_once_have_their_own_results(run: Run, called: MovableObject) -> None:
    async def work() -> list[int]:
        return await asyncio.gather(*(called.call_async("same", value=number) for number in range(1000)))

    before = threading.active_count()
    assert run(work()) == list(range(1000))
    assert threading.active_count() == before


def test_tensors_come_and_go_without_a_copy(called: MovableObject) -> None:
    given = torch.arange(6.0)

    async def work() -> tuple[torch.Tensor, torch.Tensor]:
        return await called.call_async("same", given), await called.call_async("double", value=given)

    same, double = asyncio.run(work())
    assert same.data_ptr() == given.data_ptr()
    assert torch.equal(double, given * 2)


@RUNNERS
def test_an_exception_of_a_call_is_raised_where_it_is_awaited(run: Run, called: MovableObject) -> None:
    async def work() -> None:
        with pytest.raises(RemoteError, match="not this"):
            await called.call_async("fail", "this")
        with pytest.raises(ConversionError):
            await called.call_async("unsendable")
        with pytest.raises(ConversionError):
            await called.call_async("same", object())
        assert await called.call_async("same", 1) == 1

    run(work())


@RUNNERS
def test_a_call_that_is_cancelled_while_it_waits_does_not_begin(
    run: Run, called: MovableObject, manager: InterpreterManager
) -> None:
    before = _begun(called, manager, "double")

    async def work() -> None:
        with every_interpreter(manager):
            tasks = [asyncio.create_task(called.call_async("double", number)) for number in range(20)]
            await asyncio.sleep(0.05)
            assert sum(model["waiting"] for model in manager.stats()["models"].values()) == 20
            for task in tasks[::2]:
                task.cancel()
            await asyncio.gather(*tasks[::2], return_exceptions=True)
            assert all(task.cancelled() for task in tasks[::2])
            assert sum(model["waiting"] for model in manager.stats()["models"].values()) == 10
        assert await asyncio.gather(*tasks[1::2]) == [number * 2 for number in range(1, 20, 2)]

    run(work())
    assert _begun(called, manager, "double") == before + 10


@RUNNERS
def test_a_call_past_its_time_is_interrupted_and_its_interpreter_serves_on(
    run: Run, called: MovableObject, manager: InterpreterManager
) -> None:
    async def work() -> None:
        calls = [called.call_async("loop", 60.0) for _ in range(len(manager))]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await asyncio.gather(*calls)
        async with asyncio.timeout(30):
            found = await asyncio.gather(*(called.call_async("same", number) for number in range(50)))
        assert found == list(range(50))

    began = time.monotonic()
    run(work())
    assert time.monotonic() - began < 40


def test_the_loops_modes_hold_in_the_call(called: MovableObject) -> None:
    async def work() -> None:
        assert await called.call_async("modes") == (True, False)
        with torch.no_grad():
            assert await called.call_async("modes") == (False, False)
        with torch.inference_mode():
            assert (await called.call_async("modes"))[1] is True
        assert await called.call_async("modes") == (True, False)

    asyncio.run(work())


def test_loops_of_several_threads_call_at_once(called: MovableObject) -> None:
    wrong: list[str] = []

    async def work(seed: int) -> None:
        for turn in range(10):
            mine = [f"{seed}/{turn}/{number}" for number in range(25)]
            found = await asyncio.gather(*(called.call_async("same", each) for each in mine))
            if found != mine:
                wrong.append(f"{mine} gave {found}")

    threads = [threading.Thread(target=lambda n=n: asyncio.run(work(n))) for n in range(6)]  # type: ignore[misc]
    for thread in threads:
        thread.start()
    for number in range(500):  # beside calls that a thread waits for
        assert called("same", number) == number
    for thread in threads:
        thread.join()
    assert wrong == []


def test_calls_that_are_cancelled_at_any_time_leave_all_interpreters_free(
    called: MovableObject, manager: InterpreterManager
) -> None:
    async def work() -> None:
        for turn in range(30):
            tasks = [asyncio.create_task(called.call_async("loop", 0.0005)) for _ in range(15)]
            await asyncio.sleep(0.0003 * (turn % 10))
            for task in tasks[turn % 3 :: 2]:
                task.cancel()
            for found in await asyncio.gather(*tasks, return_exceptions=True):
                assert found == "whole" or isinstance(found, asyncio.CancelledError)

    asyncio.run(work())
    with every_interpreter(manager):
        pass
    assert called("same", 5) == 5


def test_a_loop_that_is_gone_leaves_nothing(called: MovableObject) -> None:
    loop = asyncio.new_event_loop()
    gone = weakref.ref(loop)
    assert loop.run_until_complete(called.call_async("same", 1)) == 1
    loop.close()
    del loop
    gc.collect()
    assert gone() is None


def test_a_loop_that_ends_while_a_call_runs_ends_at_once(
    called: MovableObject, manager: InterpreterManager
) -> None:
    async def work() -> None:
        task = asyncio.create_task(called.call_async("loop", 60.0))
        await asyncio.sleep(0.1)
        assert not task.done()

    began = time.monotonic()
    asyncio.run(work())
    assert time.monotonic() - began < 20
    wait_for(
        lambda: not any(one["leased"] for one in manager.stats()["interpreters"]),
        "the call to be interrupted",
    )


@RUNNERS
def test_a_call_whose_coroutine_is_closed_is_interrupted(
    run: Run, called: MovableObject, manager: InterpreterManager
) -> None:
    async def work() -> None:
        calls = [called.call_async("loop", 60.0) for _ in range(len(manager))]
        for call in calls:
            call.send(None)
        await asyncio.sleep(0.1)
        for call in calls:
            call.close()
        async with asyncio.timeout(30):
            assert await called.call_async("same", 1) == 1

    run(work())


@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_loops_that_are_closed_while_their_calls_run_leave_nothing(
    make_loop: Callable[[], asyncio.AbstractEventLoop], called: MovableObject, manager: InterpreterManager
) -> None:
    async def begin() -> None:
        task = asyncio.create_task(called.call_async("loop", 60.0))
        task.get_loop().set_exception_handler(lambda *_: None)  # it would say that the task was pending
        await asyncio.sleep(0.1)

    def closed_while_a_call_runs() -> weakref.ref[asyncio.AbstractEventLoop]:
        loop = make_loop()
        loop.run_until_complete(begin())
        loop.close()
        return weakref.ref(loop)

    descriptors = len(os.listdir("/proc/self/fd"))
    gone = [closed_while_a_call_runs() for _ in range(3)]
    gc.collect()
    assert [loop() for loop in gone] == [None, None, None]
    wait_for(
        lambda: not any(one["leased"] for one in manager.stats()["interpreters"]),
        "the calls to be interrupted",
    )
    wait_for(lambda: len(os.listdir("/proc/self/fd")) <= descriptors, "the loops' descriptors to be closed")


def test_a_call_needs_a_loop(called: MovableObject) -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        called.call_async("same", 1).send(None)
