"""Says which threads run an observer's own code, so that its hooks do not observe themselves."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class OwnWork(threading.local):
    """What an observer does itself.

    Attributes:
        is_running: whether this thread is in a block of ``running``.
    """

    is_running = False

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run a block of the observer's own. Such a block has no other one in it."""
        self.is_running = True
        try:
            yield
        finally:
            self.is_running = False
