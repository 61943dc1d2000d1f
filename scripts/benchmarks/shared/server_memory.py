"""What a TorchServe takes without its frontend."""

from __future__ import annotations

import psutil
from local_server import TorchServe

MB = 1e6


def served(running: TorchServe) -> float:
    """Proportional memory of all that the server has started, MB."""
    sizes = []
    for process in running.processes():
        if process.pid != running.frontend.pid:
            try:
                sizes.append(process.memory_full_info().pss / MB)
            except psutil.NoSuchProcess:
                continue
    return sum(sizes)
