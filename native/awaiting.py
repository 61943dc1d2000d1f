"""Calls of movable objects that an event loop awaits, asyncio's or uvloop's."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, ref

from interpool.native import _native

if TYPE_CHECKING:
    from interpool.native._native import MovableObject


class _LoopCalls:
    """The calls that the running event loop awaits. For its thread alone.

    Its futures refer to the loop. So the loop alone owns it, as the reader of its inbox, and drops it when it
    is closed.
    """

    def __init__(self) -> None:
        self._inbox = _native.CallInbox()
        self._awaited: dict[_native.AwaitedCall, asyncio.Future[Any]] = {}
        asyncio.get_running_loop().add_reader(self._inbox.fileno(), self._hear)

    async def outcome(self, movable: MovableObject, args: Any, kwargs: Any) -> Any:
        future = asyncio.get_running_loop().create_future()
        call = _native.AwaitedCall(movable, args, kwargs, self._inbox)
        self._awaited[call] = future
        try:
            return await future
        finally:  # also if the coroutine is closed, as a task's is that is collected
            if self._awaited.pop(call, None) is not None:
                call.cancel()

    def _hear(self) -> None:
        for call in self._inbox.take():
            future = self._awaited.pop(call, None)
            if future is None or future.done():
                continue
            try:
                future.set_result(call.result())
            except Exception as error:  # noqa: BLE001 - raised where it is awaited
                future.set_exception(error)


_of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, ref[_LoopCalls]] = WeakKeyDictionary()


async def call_async(movable: MovableObject, *args: Any, **kwargs: Any) -> Any:
    """See ``MovableObject.call_async``."""
    loop = asyncio.get_running_loop()
    known = _of_loops.get(loop)
    calls = known() if known is not None else None
    if calls is None:
        calls = _LoopCalls()
        _of_loops[loop] = ref(calls)
    return await calls.outcome(movable, args, kwargs)
