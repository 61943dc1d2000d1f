"""Where memory runs out, what is asked for next is refused, before the kernel ends the process for it.

A model that asks for memory without end would take all models of its pool along: the kernel's OOM killer
ends processes. So when little is left, the process's data may not grow by more than half of that
(``RLIMIT_DATA``, the soft one, which can be raised again). Whoever asks for more gets MemoryError, or torch's
own error: as a rule the model that asks all the time, whose call ends with that; what it held is free again.

The limit is of address space and not of memory, and says nothing of what was reserved and not used yet: it
cannot be in place all the time: threads' stacks are 64 MiB each. But where the end could come between two
looks, as little is left and that shrinks fast, growth is limited to what there is.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import resource
import threading
import time
from collections.abc import Callable

from interpool.handler.host import memory
from interpool.handler.host.memory import Room

SHORT = 0.06  # parts of a limit: what is left when growth is limited to half of it,
ENOUGH = 0.12  # and when that ends
NEAR = 1 << 30  # bytes that may be gone before the next look, or half of a smaller limit
SOON_S = 0.1  # in which nothing is left, at the speed since the last look: the next may come that late,
FAST = 4  # or in so many times what has passed since
FASTEST = 16 << 30  # bytes a second that processes may take
PAUSES_S = (0.05, 1.0)
FIRST = -20  # the nice value of a thread that runs before others

logger = logging.getLogger("interpool.host")


class MemoryBrake:
    """Looks how much is left, and has allocations fail where that is too little.

    Args:
        rooms: what is left of each limit.
        data_size: the bytes that ``RLIMIT_DATA`` counts.
        clock: seconds since any time.
    """

    def __init__(
        self,
        rooms: Callable[[], list[Room]],
        data_size: Callable[[], int] = memory.data_size,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rooms = rooms
        self._data_size = data_size
        self._clock = clock
        self._before: tuple[int, int] | None = None  # the process's limit, while it is another one
        self._is_short = False
        self._margin = -math.inf  # at the last look: bytes that were left before the end is near
        self._looked_at = -math.inf

    def start(self) -> None:
        """Look for as long as the process lives."""
        threading.Thread(target=self._run, name="memory", daemon=True).start()

    def look(self) -> float:
        """Do what is due; gives the seconds until it is to look again."""
        size = self._data_size()  # before what is left, which grows no more meanwhile
        rooms = self._rooms()
        if not rooms or not size:
            return PAUSES_S[1]
        least = min(rooms, key=lambda room: room.part)
        was_short, self._is_short = self._is_short, least.part < (ENOUGH if self._is_short else SHORT)
        tightest = min(rooms, key=lambda room: room.free - _near(room))
        margin = tightest.free - _near(tightest)
        lost, self._margin = self._margin - margin, margin
        now = self._clock()
        passed, self._looked_at = now - self._looked_at, now
        if self._is_short:
            if not was_short:
                self._limit(size + least.free // 2)
                logger.error(
                    "memory is short: %d of %d MB are left; what asks for much more is refused (MemoryError)",
                    least.free >> 20,
                    least.most >> 20,
                )
        elif margin < 0 and lost * max(SOON_S, FAST * passed) > tightest.free * passed:
            self._limit(size + tightest.free - int(SHORT * tightest.most / 2))
        else:
            self._lift()
        if was_short and not self._is_short:
            logger.info("memory is to be had again")
        # Before it can have shrunk to what is near, at that speed; then several times before that is gone.
        soonest = min(_near(tightest) / FASTEST / FAST, PAUSES_S[0])
        return min(max(margin / FASTEST, soonest), PAUSES_S[1])

    def _limit(self, most: int) -> None:
        if self._before is None:
            self._before = resource.getrlimit(resource.RLIMIT_DATA)
        soft, hard = self._before
        if soft != resource.RLIM_INFINITY:
            most = min(most, soft)
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))

    def _lift(self) -> None:
        if self._before is not None:
            resource.setrlimit(resource.RLIMIT_DATA, self._before)
            self._before = None

    def _run(self) -> None:
        # Or a look comes too late on a machine that is busy. Root may, unless its container may not.
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), FIRST)
        told = ""
        while True:
            pause = PAUSES_S[1]
            try:
                pause = self.look()
            except (
                Exception
            ) as error:  # MemoryError as well: who does not look again leaves the limit as it is
                with contextlib.suppress(Exception):
                    if repr(error) != told:  # not once a second
                        logger.exception("the memory that is left cannot be looked after")
                    told = repr(error)
            time.sleep(pause)


def _near(room: Room) -> int:
    return min(NEAR, room.most // 2)
