"""Refuses allocations if memory runs short, before the kernel ends the process for it.

A model that allocates memory without end would end all models of its pool, as the kernel's OOM killer ends
whole processes. So when little memory is left, the process's data may grow by no more than half of that. The
brake sets the soft limit ``RLIMIT_DATA``, which can be raised again. Code that allocates more gets
MemoryError, or torch's own error. As a rule that is the model that allocates all the time. Its call ends
with the error, and what it held is free again.

``RLIMIT_DATA`` limits address space and not memory, and does not show what was reserved and is not used yet.
It cannot be in place all the time, as each thread's stack reserves up to 64 MiB. But memory may be so short,
and shrink so fast, that it could run out between two looks. Then growth is limited to what is left.

A limit of the control group that slows down (``memory.high``) would slow down all models of the process.
"""

from __future__ import annotations

import contextlib
import logging
import math
import resource
import threading
import time
from collections.abc import Callable

from interpool.handler.host import memory
from interpool.handler.host.memory import Room

SHORT = 0.06  # part of a limit: if less is left, growth is limited to half of that
ENOUGH = 0.12  # part of a limit: if so much is left again, the growth is limited no more
NEAR = 1 << 30  # bytes that may be gone before the next look; of a smaller limit, half of it
SOON_S = 0.1  # growth is limited if, at the speed since the last look, nothing is left after that time
FASTEST = 16 << 30  # bytes a second that processes may allocate at most
LONGEST_S = 1.0  # between two looks

logger = logging.getLogger("interpool.host")


class MemoryBrake:
    """Looks how much memory is left, and makes allocations fail if that is too little.

    Args:
        rooms: returns what is left of each limit.
        data_size: returns the bytes that count for ``RLIMIT_DATA``; 0: unknown.
        clock: returns seconds since any fixed time.
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
        self._before: tuple[int, int] | None = None  # the process's original limit, while another one is set
        self._is_short = False
        self._margin = -math.inf  # bytes that were left above ``NEAR`` at the last look
        self._looked_at = -math.inf
        self._thread = threading.Thread(target=self._run, name="memory", daemon=True)
        self._stopped = threading.Event()

    def start(self) -> None:
        """Look until ``stop``, or for as long as the process lives, in a thread of its own."""
        self._thread.start()

    def stop(self) -> None:
        """Stop looking, and end the limit."""
        self._stopped.set()
        self._thread.join()
        self._lift()

    def look(self) -> float:
        """Limit the process's growth, or end that limit, as is due now.

        Returns:
            The seconds until the next look is due.
        """
        size = self._data_size()  # first: growth before the next line makes the limit lower
        rooms = self._rooms()
        if not rooms or not size:
            return LONGEST_S
        least, tightest = min(rooms, key=lambda room: room.part), min(rooms, key=_margin)
        was_short, self._is_short = self._is_short, least.part < (ENOUGH if self._is_short else SHORT)
        margin = _margin(tightest)
        lost, self._margin = self._margin - margin, margin
        now = self._clock()
        passed, self._looked_at = now - self._looked_at, now
        if not self._is_short and (margin >= 0 or lost * SOON_S <= tightest.free * passed):
            self._lift()
        elif not (self._is_short and was_short):
            self._limit(size + min(map(_growth, rooms)))
        if self._is_short and not was_short:
            logger.error(
                "memory is short: %d of %d MB are left; what asks for much more is refused (MemoryError)",
                least.free >> 20,
                least.most >> 20,
            )
        if was_short and not self._is_short:
            logger.info("memory is to be had again")
        # The next look comes before memory can shrink to NEAR at the greatest speed. Below NEAR, several
        # looks come before the rest can be gone.
        return min(max(margin, _near(tightest) / 4) / FASTEST, LONGEST_S)

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
        pause = 0.0
        while True:
            try:
                if self._stopped.wait(pause):
                    return
                pause = self.look()
            except Exception:  # MemoryError as well: if this thread ended, the limit would stay as it is
                pause = LONGEST_S
                with contextlib.suppress(Exception):
                    logger.exception("the memory that is left cannot be looked after")


def _near(room: Room) -> int:
    return min(NEAR, room.most // 2)


def _margin(room: Room) -> int:
    """The bytes that are left above ``NEAR``."""
    return room.free - _near(room)


def _growth(room: Room) -> int:
    """The bytes by which the process may grow: half of what is left if that is little, else nearly all."""
    return max(room.free // 2, room.free - int(SHORT * room.most / 2))
