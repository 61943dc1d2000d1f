"""Restores the server's home if it is gone: TorchServe starts each worker from there.

A user or a program may have removed it, with the folder that holds it. The host makes it again at the same
path.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from interpool.handler.errors import OverlayError
from interpool.handler.frontend import shim
from interpool.handler.torchserve import HOME_VARIABLE, WORKER_SCRIPT

logger = logging.getLogger("interpool.host")


class ServerHome:
    """The overlay that this host's TorchServe was started with, as its environment names it."""

    def __init__(self) -> None:
        self._home = Path(os.environ.get(HOME_VARIABLE, ""))
        # A home that is no overlay is left alone: a test's own server may have one.
        self._is_ours = (self._home / shim.OVERLAY_RECORD).exists()
        self._failure = ""

    def look(self) -> None:
        """Make the home again if it is gone. The log says what prevents that."""
        needed = (self._home / "ts" / WORKER_SCRIPT, self._home / shim.OVERLAY_RECORD)
        if not self._is_ours or all(path.exists() for path in needed):
            return
        from interpool.handler.frontend.overlay import restore

        try:
            is_new = restore(self._home)
        except OverlayError as error:
            if str(error) != self._failure:
                logger.error("the server's home %s is gone, and workers cannot start: %s", self._home, error)
            self._failure = str(error)
            return
        self._failure = ""
        if is_new:  # else another host was first
            logger.warning("the server's home %s was gone, and is made again", self._home)

    def leave(self) -> None:
        """Remove the home if `interpool serve` had made it: TorchServe has ended."""
        if self._is_ours:
            from interpool.handler.frontend.server_home import remove_ended

            remove_ended(self._home.parent, own=self._home)
