"""The channels on which an event loop sends requests to workers. For that loop's thread alone."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from interpool.native._native import Channel, Reply

logger = logging.getLogger("interpool.direct")


class Channels:
    """All channels of one event loop. One descriptor wakes the loop for the replies of all."""

    def __init__(self) -> None:
        from interpool.native import _native

        self._inbox = _native.Inbox()
        self._hearers: dict[int, Callable[[Reply | None], None]] = {}
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._inbox.fileno(), self._hear)

    def open(self, hear: Callable[[Reply | None], None], load_command: bytes) -> Channel:
        """Open a channel.

        Args:
            hear: gets the worker's replies; None, once: the channel has ended.
            load_command: TorchServe's load command, the first message on the channel.
        """
        from interpool.native import _native

        channel = _native.Channel(self._inbox, load_command)
        self._hearers[channel.number] = hear
        return channel

    def close(self) -> None:
        """Take no more replies."""
        self._loop.remove_reader(self._inbox.fileno())

    def _hear(self) -> None:
        for number, reply in self._inbox.take():
            hear = self._hearers.get(number) if reply is not None else self._hearers.pop(number, None)
            if hear is None:
                continue
            try:
                hear(reply)
            except Exception:  # the replies of other channels must still be handled
                logger.exception("an answer could not be passed on")
