"""The handler that TorchServe's loader finds for a hermetic model: always the installed one.

The file of that name in a .mar is a name and nothing more: it makes the archive hermetic, and
what it holds is never run here. So an archive that is refused has run nothing at all, and other
files beside it cannot shadow modules that others import.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from interpool.handler.frontend.shim import HANDLER_STEM
from interpool.handler.stock_worker import interpool_handler


@contextmanager
def installed_handler() -> Iterator[None]:
    """Let TorchServe's loader, which imports by bare name, find it."""
    sys.modules[HANDLER_STEM] = interpool_handler
    try:
        yield
    finally:
        sys.modules.pop(HANDLER_STEM, None)
