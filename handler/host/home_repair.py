"""Restores the server's home if it is gone: TorchServe starts each worker from there.

A user or a program may have removed it, with the folder that holds it. The host makes it again at the same
path.

A host holds the home as TorchServe does. After a repair only hosts hold it, because TorchServe holds a file
that is gone.
"""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path

from interpool.handler.errors import OverlayError
from interpool.handler.frontend import shim
from interpool.handler.frontend.held import IN_HOME
from interpool.handler.torchserve import HOME_VARIABLE, WORKER_SCRIPT

logger = logging.getLogger("interpool.host")


class ServerHome:
    """The overlay that this host's TorchServe was started with, as its environment names it."""

    def __init__(self) -> None:
        self._home = os.environ.get(HOME_VARIABLE, "")
        # A home that is no overlay is left alone: a test's own server may have one.
        self._is_ours = bool(self._home) and os.path.exists(self._record)
        self._hold = -1
        self._failure = ""
        if self._is_ours:
            with contextlib.suppress(OSError):  # an overlay of `interpool home` has no such file
                self._hold = shim.hold(self._held)

    @property
    def _record(self) -> str:
        return os.path.join(self._home, shim.OVERLAY_RECORD)

    @property
    def _held(self) -> str:
        return os.path.join(self._home, IN_HOME)

    def look(self) -> None:
        """Make the home again if it is gone. The log says what prevents that."""
        if not self._is_ours or self._is_whole():
            return
        from interpool.handler.frontend.overlay import restore
        from interpool.handler.frontend.server_home import hold_home

        try:
            is_new = restore(Path(self._home))
            hold = hold_home(Path(self._home))
        except (OverlayError, OSError) as error:
            if str(error) != self._failure:
                logger.error("the server's home %s is gone, and workers cannot start: %s", self._home, error)
            self._failure = str(error)
            return
        self._failure = ""
        if self._hold >= 0:
            os.close(self._hold)
        self._hold = hold
        if is_new:  # else another host was first
            logger.warning("the server's home %s was gone, and is made again", self._home)

    def _is_whole(self) -> bool:
        """Whether workers can start there, and this host holds the home that is there now."""
        try:
            os.stat(os.path.join(self._home, "ts", WORKER_SCRIPT))
            os.stat(self._record)
            return self._hold < 0 or os.path.samestat(os.stat(self._held), os.fstat(self._hold))
        except OSError:
            return False

    def leave(self, *, server_is_gone: bool) -> None:
        """Let go of the home. Remove it if `interpool serve` had made it for a TorchServe that has ended.

        Args:
            server_is_gone: whether TorchServe has ended; else a home that was made again stays, though no
                process holds it then.
        """
        if self._hold >= 0:
            os.close(self._hold)
        if self._is_ours and server_is_gone:
            from interpool.handler.frontend.server_home import remove_ended

            remove_ended(Path(self._home).parent)
