"""The connections to the host's control socket: it accepts or refuses them, and knows the followers.

control.py describes the messages.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from interpool.handler.errors import SettingsError
from interpool.handler.frontend import shim
from interpool.handler.host import control
from interpool.handler.host.events import Events
from interpool.handler.host.resource_limits import Limits
from interpool.handler.host.survival import Survival
from interpool.handler.host.worker import Worker

logger = logging.getLogger("interpool.host")


@dataclass
class ControlSocket:
    """Accepts this user's processes. For the control thread.

    Raises:
        OSError: the socket cannot be made or bound.
    """

    runtime_dir: Path  # of the socket; the caller holds its lock
    events: Events
    limits: Limits
    survival: Survival  # ends the host if the process can never have descriptors again
    on_message: Callable[[socket.socket], None]  # called with a peer that has sent a message, or has ended

    def __post_init__(self) -> None:
        """Listen."""
        self._peers: set[socket.socket] = set()  # connections that are no worker's
        self._followers: set[socket.socket] = set()  # peers to which the host reports TorchServe's workers
        self._reserve = _reserve()
        self._listener = control.listen(self.runtime_dir)
        self.events.watch(self._listener, self._accept)

    @property
    def is_asked(self) -> bool:
        """Whether there is a peer that may become a worker, or asks for something."""
        return bool(self._peers - self._followers)

    def follow(self, peer: socket.socket) -> None:
        """Make a peer a follower."""
        self._followers.add(peer)

    def announce(self, worker: Worker) -> None:
        """Report a worker to the followers, if it is TorchServe's and has its model."""
        if worker.direct or not worker.started or worker.connection is None:
            return
        try:
            text = worker.for_followers()
        except SettingsError as error:  # its manifest is gone: it is being unregistered
            logger.info("%s is not announced: %s", worker.model, error)
            return
        for follower in list(self._followers):
            if not control.send(follower, "worker", text, worker.stdio):
                self.drop(follower)

    def take(self, peer: socket.socket) -> None:
        """Leave a peer to a worker, which closes it. It is still watched."""
        self._peers.discard(peer)

    def detach(self, peer: socket.socket) -> None:
        """Leave a peer to the caller, which closes it. It is no longer watched."""
        self.events.unwatch(peer)
        self._peers.discard(peer)

    def drop(self, peer: socket.socket) -> None:
        """Close the connection to a peer."""
        self.detach(peer)
        self._followers.discard(peer)
        peer.close()

    def close(self) -> None:
        """Close the socket and every connection that is no worker's; failures are logged."""
        attempt = self.survival.attempt
        attempt(lambda: self.events.unwatch(self._listener), "the control socket could not be left")
        attempt(self._listener.close, "the control socket could not be closed")
        for peer in list(self._peers):
            attempt(partial(self.drop, peer), "a connection could not be closed")
        if self._reserve >= 0:
            os.close(self._reserve)
            self._reserve = -1

    def _accept(self) -> None:
        try:
            peer, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            return
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            if not self.limits.restore():  # else it is asked again
                self._turn_away()
            return
        if not control.same_user(peer):
            peer.close()
            return
        peer.setblocking(False)
        self._peers.add(peer)
        self.events.watch(peer, lambda: self.on_message(peer))

    def _turn_away(self) -> None:
        """Accept with the descriptor that is reserved for this, say that no other is left, and close."""
        if self._reserve >= 0:
            os.close(self._reserve)
            self._reserve = -1
        try:
            peer, _ = self._listener.accept()
        except OSError:
            if self.limits.lowered:
                self.survival.leave(self.limits.lowered)
            raise
        with peer:
            control.send(peer, "refused", self.limits.exhausted())
            with contextlib.suppress(OSError):  # else the other side would get an error before the answer
                peer.recv(shim.MESSAGE_LIMIT, socket.MSG_DONTWAIT)
        self._reserve = _reserve()


def _reserve() -> int:
    """A descriptor to close when one is needed for something more urgent."""
    return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
