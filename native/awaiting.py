"""Calls of movable objects that an event loop awaits, asyncio's or uvloop's."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from interpool.native import _native

if TYPE_CHECKING:
    from interpool.native._native import MovableObject


class _LoopCalls:
    """The calls that the running event loop awaits. For its thread alone.

    It does not refer to the loop, so that the loop is deleted with its program's last reference.
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
        except asyncio.CancelledError:
            if self._awaited.pop(call, None) is not None:
                call.cancel()
            raise

    def _hear(self) -> None:
        for call in self._inbox.take():
            future = self._awaited.pop(call, None)
            if future is None or future.done():
                continue
            try:
                future.set_result(call.result())
            except Exception as error:  # noqa: BLE001 - raised where it is awaited
                future.set_exception(error)


_of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopCalls] = WeakKeyDictionary()


async def call_async(movable: MovableObject, *args: Any, **kwargs: Any) -> Any:
    """See ``MovableObject.call_async``."""
    loop = asyncio.get_running_loop()
    calls = _of_loops.get(loop)
    if calls is None:
        calls = _of_loops[loop] = _LoopCalls()
    return await calls.outcome(movable, args, kwargs)
