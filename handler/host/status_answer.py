"""Answers the questions ``status``, ``drain`` and ``stacks`` that processes ask a host (see control.py)."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from interpool.handler.host import control
from interpool.handler.host.interpreter_pool import Pool
from interpool.handler.host.pool_growth import PoolGrowth
from interpool.handler.host.resource_limits import Limits
from interpool.handler.host.served_models import ServedModels
from interpool.handler.host.status import memory_of
from interpool.handler.host.worker_set import WorkerSet

if TYPE_CHECKING:
    from interpool.handler.direct.traffic import DirectState
    from interpool.handler.host.host_state import HostState


@dataclass
class StatusAnswer:
    """What a host's state is made from (see host_state.py). For the host's control thread."""

    name: str
    server: str
    frontend_pid: int
    pool: Pool
    workers: WorkerSet
    models: ServedModels
    growth: PoolGrowth
    limits: Limits
    describe_direct: Callable[[], DirectState | None]
    direct_trouble: Callable[[], str]
    is_draining: bool = False
    _started: float = field(default_factory=time.time)
    _began: float = field(default_factory=time.monotonic)

    def send(self, peer: socket.socket) -> None:
        """Send the host's state, as JSON."""
        control.send_text(peer, json.dumps(self._state()))

    def send_stacks(self, peer: socket.socket) -> None:
        """Send the interpreters' stacks and close the connection, in a thread that may wait for a GIL."""
        manager = self.pool.manager

        def answer() -> None:
            with peer:
                control.send_text(peer, manager.dump_stacks() if manager is not None else "")

        threading.Thread(target=answer, name="stacks", daemon=True).start()

    def _state(self) -> HostState:
        workers = [w.describe() for w in self.workers.all() if not w.registration.beside]
        beside = [w.describe() for w in self.workers.all() if w.registration.beside]
        return {
            "server": self.server,
            "pool": self.name,
            "pid": os.getpid(),
            "frontend_pid": self.frontend_pid,
            "draining": self.is_draining,
            "uptime_s": round(time.monotonic() - self._began, 1),
            "interpreters": self.pool.manager.stats() if self.pool.manager else None,
            "models": sorted({worker["model_dir"] for worker in workers}),
            "workers": workers,
            "beside": beside,
            "direct": self.describe_direct(),
            "served": self.models.here(),
            "gone": self.models.gone(),
            "started": self._started,
            "memory": memory_of(os.getpid()),
            "trouble": "; ".join(
                filter(None, (self.growth.trouble, self.limits.trouble, self.direct_trouble()))
            ),
        }
