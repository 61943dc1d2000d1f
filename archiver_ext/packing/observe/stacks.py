"""Frames of the code that does something, in the thread in which it runs."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


def stack_of(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame of this thread and its callers.

    In another thread than the main thread, which usually waits for it, then those of the main thread.
    """
    yield from _callers(frame)
    main = threading.main_thread().ident
    if threading.get_ident() != main:
        yield from _callers(sys._current_frames().get(main or 0))


def _callers(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
