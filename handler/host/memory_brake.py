"""Where memory runs out, what is asked for next is refused, before the kernel ends the process for it.

A model that asks for memory without end would take all models of its pool along: the kernel's OOM killer
ends processes. So when little is left, the process's data may not grow by more than half of that
(``RLIMIT_DATA``, the soft one, which can be raised again). Whoever asks for more gets MemoryError, or torch's
own error: as a rule the model that asks all the time, whose call ends with that; what it held is free again.

The limit is of address space and not of memory, and says nothing of what was reserved and not used yet: it
cannot be in place all the time.
"""

from __future__ import annotations

import logging
import resource
import threading
import time
from collections.abc import Callable

from interpool.handler.host import memory
from interpool.handler.host.memory import Room

SHORT = 0.06  # parts of a limit: what is left when it is applied,
ENOUGH = 0.12  # and when it is lifted
FASTEST = 4 << 30  # bytes a second that processes may take
PAUSES_S = (0.05, 1.0)

logger = logging.getLogger("interpool.host")


class MemoryBrake:
    """Looks how much is left, and has allocations fail where that is too little.

    Args:
        rooms: what is left of each limit.
        data_size: the bytes that ``RLIMIT_DATA`` counts.
    """

    def __init__(
        self, rooms: Callable[[], list[Room]], data_size: Callable[[], int] = memory.data_size
    ) -> None:
        self._rooms = rooms
        self._data_size = data_size
        self._before: tuple[int, int] | None = None  # the process's limit, while it is another one

    def start(self) -> None:
        """Look for as long as the process lives."""
        threading.Thread(target=self._run, name="memory", daemon=True).start()

    def look(self) -> float:
        """Do what is due; gives the seconds until it is to look again."""
        least = min(self._rooms(), key=lambda room: room.part, default=None)
        if least is None:
            return PAUSES_S[1]
        if self._before is None and least.part < SHORT:
            self._apply(least)
        elif self._before is not None and least.part > ENOUGH:
            self._lift()
        # Before it can have shrunk to what is short, at that speed.
        pause = (least.free - SHORT * least.most) / FASTEST
        return min(max(pause, PAUSES_S[0]), PAUSES_S[1])

    def _apply(self, least: Room) -> None:
        size = self._data_size()
        if not size:
            return
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        most = size + least.free // 2
        if soft != resource.RLIM_INFINITY:
            most = min(most, soft)
        self._before = soft, hard
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
        logger.error(
            "memory is short: %d of %d MB are left; what asks for much more is refused (MemoryError)",
            least.free >> 20,
            least.most >> 20,
        )

    def _lift(self) -> None:
        assert self._before is not None
        resource.setrlimit(resource.RLIMIT_DATA, self._before)
        self._before = None
        logger.info("memory is to be had again")

    def _run(self) -> None:
        while True:
            pause = PAUSES_S[1]
            try:
                pause = self.look()
            except (OSError, ValueError):
                logger.exception("the memory that is left cannot be looked after")
            time.sleep(pause)
