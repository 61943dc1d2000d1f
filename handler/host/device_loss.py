"""Ends the host once its process has lost its GPU: every model that uses the GPU fails here from then on.

The first model that reports the loss may have caused it. From the next host on, it has a process of its own.
Models that report it later fail because of the same loss.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from interpool.handler.host.isolation import Isolation
from interpool.handler.host.served_models import End
from interpool.handler.host.survival import Survival
from interpool.handler.host.worker import Worker

LAST_ANSWER_S = 1.0  # in which the worker whose call found that the GPU is lost can still answer
_NO_DEVICE = "this process can use its GPU no more, and the next one can"

logger = logging.getLogger("interpool.host")


@dataclass
class DeviceLoss:
    """Knows when the GPU was lost. For the host's control thread."""

    isolation: Isolation
    survival: Survival
    _since: float = 0.0  # by time.monotonic(); 0: the GPU is not lost

    def note(self, worker: Worker, reason: str) -> None:
        """Note that a call has reported the loss. The host leaves once that call is answered."""
        served = ""
        if not (self.isolation.is_own or self._since):
            self.isolation.give_own_process(worker.registration.model_dir)
            served = f". {worker.model} is served by a process of its own until the server ends"
        logger.error("a call of %s failed: %s%s", worker.model, reason, served)
        worker.tell(f"interpool: {reason}{served}\n")
        self._since = self._since or time.monotonic()
        if worker.connection is None:  # no client waits for its answer
            self.survival.leave(_NO_DEVICE)

    def note_end(self, worker: Worker) -> None:
        """Note that a worker's connection has ended, and have the host leave if that reported the loss."""
        if worker.reported_end is End.DEVICE_LOST:
            self.survival.leave(_NO_DEVICE)

    def look(self) -> None:
        """Have the host leave if the last answer takes too long."""
        if self._since and time.monotonic() - self._since >= LAST_ANSWER_S:
            self.survival.leave(_NO_DEVICE)
