"""Ends a server in the foreground without losing requests, if it gets SIGTERM.

``interpool serve --foreground`` with ``INTERPOOL_DRAIN_S`` waits so for TorchServe's frontend:

1. The hosts of its pools say that they are not ready, and answer as before.
2. For so many seconds, load balancers may notice that.
3. Then it waits until no call runs or waits in a pool.
4. Then it ends the frontend.

A second SIGTERM ends the frontend at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType

from interpool.handler.frontend import shim
from interpool.handler.host import control
from interpool.handler.host.host_state import HostState
from interpool.handler.torchserve import running_frontend

LOOK_S = 0.1
# A batch that TorchServe has not sent yet, or an answer that it is still sending, is in no pool.
IDLE_S = 1.0
_ENDED_BY_SIGTERM = 128 + signal.SIGTERM


def drain_on_sigterm(seconds: float) -> None:
    """Have SIGTERM drain this process's TorchServe before it ends; for the main thread only.

    Args:
        seconds: that the server goes on with new requests while it says that it is not ready.
    """

    def end(_signal: int, _frame: FrameType | None) -> None:
        frontend = running_frontend()
        if frontend is None:
            sys.exit(_ENDED_BY_SIGTERM)
        signal.signal(signal.SIGTERM, lambda *_: os.kill(frontend, signal.SIGTERM))
        threading.Thread(target=_drain, args=(frontend, seconds), name="drain", daemon=True).start()

    signal.signal(signal.SIGTERM, end)


def _drain(frontend: int, seconds: float) -> None:
    print(f"interpool: SIGTERM: no longer ready, and about to end after {seconds:g} s", flush=True)
    begun = idle_since = time.monotonic()
    while True:
        now = time.monotonic()
        if any(map(_is_busy, _told_to_drain(frontend))):
            idle_since = now
        if now - begun >= seconds and now - idle_since >= IDLE_S:
            break
        time.sleep(LOOK_S)
    os.kill(frontend, signal.SIGTERM)


def _told_to_drain(frontend: int) -> list[HostState]:
    """The states of the frontend's hosts, which say from now on that they are not ready."""
    hosts = []
    for directory in Path(shim.runtime_base()).glob(f"{frontend}-*"):
        with contextlib.suppress(OSError, ValueError):  # it has no host
            hosts.append(json.loads(control.ask_to_drain(directory)))
    return hosts


def _is_busy(host: HostState) -> bool:
    pool = host["interpreters"]
    return pool is not None and (
        pool["waiting"] > 0 or any(one["state"] == "leased" for one in pool["interpreters"])
    )
