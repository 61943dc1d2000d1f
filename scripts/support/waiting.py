"""Waiting for what happens elsewhere: on another thread, in another process or interpreter."""

from __future__ import annotations

import time
from collections.abc import Callable

NOT_STUCK_S = 120.0


def wait_for(
    condition: Callable[[], object],
    what: str | Callable[[], str],
    seconds: float = NOT_STUCK_S,
    pause: float = 0.02,
) -> None:
    """Wait until ``condition`` holds.

    Args:
        condition: asked again and again.
        what: is waited for, for the message. A function is called in the end, and returns it.
        seconds: distinguish what is stuck from what is slow, and mean nothing else: on a busy
            machine everything may take long. A test shows by events and orders that something is in time.
        pause: between two questions, in seconds.

    Raises:
        AssertionError: it is stuck.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:g} s for {what if isinstance(what, str) else what()}")
        time.sleep(pause)
