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
        self._home = os.environ.get(HOME_VARIABLE, "")
        # A home that is no overlay is left alone: a test's own server may have one.
        self._is_ours = bool(self._home) and os.path.exists(self._record)
        self._hold = -1
        self._failure = ""

    @property
    def _record(self) -> str:
        return os.path.join(self._home, shim.OVERLAY_RECORD)

    def look(self) -> None:
        """Make the home again if it is gone. The log says what prevents that."""
        worker = os.path.join(self._home, "ts", WORKER_SCRIPT)
        if not self._is_ours or (os.path.exists(worker) and os.path.exists(self._record)):
            return
        from interpool.handler.frontend.overlay import restore
        from interpool.handler.frontend.server_home import hold_again

        try:
            restore(Path(self._home))
            if self._hold >= 0:
                os.close(self._hold)
            self._hold = hold_again(Path(self._home))
        except (OverlayError, OSError) as error:
            if str(error) != self._failure:
                logger.error("the server's home %s is gone, and workers cannot start: %s", self._home, error)
            self._failure = str(error)
        else:
            self._failure = ""
            logger.warning("the server's home %s was gone, and is made again", self._home)

    def leave(self) -> None:
        """Remove the home, if `interpool serve` had made it for a TorchServe that has ended."""
        if self._hold >= 0:
            os.close(self._hold)
        if self._is_ours:
            from interpool.handler.frontend.server_home import remove_ended

            remove_ended(Path(self._home).parent)
