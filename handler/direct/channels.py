"""The channels on which an event loop sends requests to workers. For that loop's thread alone."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from interpool.native._native import Channel, Reply

logger = logging.getLogger("interpool.direct")


class Asker(Protocol):
    """The object that sends requests on a channel, and gets the replies."""

    def hear(self, reply: Reply | None) -> None:
        """Take a reply of the worker; None, once: the channel has ended."""


class Channels:
    """All channels of one event loop. One descriptor wakes the loop for the replies of all."""

    def __init__(self) -> None:
        from interpool.native import _native

        self._inbox = _native.Inbox()
        self._askers: dict[int, Asker] = {}
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._inbox.fileno(), self._hear)

    def open(self, asker: Asker, load_command: bytes) -> Channel:
        """Open a channel.

        Args:
            asker: gets the replies.
            load_command: TorchServe's load command, the first message on the channel.
        """
        from interpool.native import _native

        channel = _native.Channel(self._inbox, load_command)
        self._askers[channel.number] = asker
        return channel

    def close(self) -> None:
        """Take no more replies."""
        self._loop.remove_reader(self._inbox.fileno())

    def _hear(self) -> None:
        for number, reply in self._inbox.take():
            asker = self._askers.get(number) if reply is not None else self._askers.pop(number, None)
            if asker is None:
                continue
            try:
                asker.hear(reply)
            except Exception:  # the replies of other channels must still be handled
                logger.exception("an answer could not be passed on")
