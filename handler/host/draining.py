"""Ends a server in the foreground if it gets SIGTERM, without losing requests.

``interpool serve --foreground`` waits so for TorchServe's frontend, which is its child:

1. The hosts of its pools say that they are not ready, and answer as before.
2. For ``INTERPOOL_DRAIN_S`` seconds, load balancers may notice that.
3. It waits until no call runs or waits in a pool, ``CALLS_S`` seconds at most.
4. It ends the frontend.

Without ``INTERPOOL_DRAIN_S`` it ends the frontend at once, and so it does at a second SIGTERM.
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
from interpool.handler.torchserve import frontend_arguments

LOOK_S = 0.5
# A batch that TorchServe has not sent yet, or an answer that it is still sending, is in no pool.
IDLE_S = 1.0
CALLS_S = 60.0
_ENDED_BY_SIGTERM = 128 + signal.SIGTERM


def drain_on_sigterm(seconds: float) -> None:
    """Have SIGTERM drain this process's TorchServe before it ends; for the main thread only.

    Args:
        seconds: that the server goes on with new requests while it says that it is not ready.
    """

    def end(_signal: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, end_at_once)
        if seconds:
            threading.Thread(target=_drain, args=(seconds,), name="drain", daemon=True).start()
        else:
            end_at_once(_signal, _frame)

    def end_at_once(_signal: int, _frame: FrameType | None) -> None:
        frontend = _frontend()
        if frontend is None:
            sys.exit(_ENDED_BY_SIGTERM)
        os.kill(frontend, signal.SIGTERM)

    signal.signal(signal.SIGTERM, end)


def _drain(seconds: float) -> None:
    print(f"interpool: SIGTERM: no longer ready, and about to end after {seconds:g} s", flush=True)
    begun = idle_since = time.monotonic()
    while (frontend := _frontend()) is None:
        time.sleep(LOOK_S)  # it is being started; if it cannot be, this process ends
    while (now := time.monotonic()) - begun < seconds + CALLS_S:
        if _is_busy(frontend):
            idle_since = now
        if now - begun >= seconds and now - idle_since >= IDLE_S:
            break
        time.sleep(LOOK_S)
    os.kill(frontend, signal.SIGTERM)


def _frontend() -> int | None:
    """TorchServe's frontend, if this process has one: its child."""
    with contextlib.suppress(OSError):  # a child has just ended
        for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii").split():
            if frontend_arguments(pid):
                return int(pid)
    return None


def _is_busy(frontend: int) -> bool:
    """Whether a call runs or waits in a pool of the frontend's; its hosts say that they are not ready."""
    try:
        # Containers that share the base may have a frontend with the same process id.
        key = shim.instance_key(frontend, "")
    except shim.Refused:
        return False  # it has ended
    # Each of them hears of it, also if one has calls.
    calls = [_has_calls(directory) for directory in Path(shim.runtime_base()).glob(f"{key}*")]
    return any(calls)


def _has_calls(directory: Path) -> bool:
    """Whether a host has calls, which says from now on that it is not ready."""
    try:
        pool = json.loads(control.ask(directory, control.DRAIN_REQUEST))["interpreters"]
    except (FileNotFoundError, ConnectionRefusedError):
        return False  # the directory has no host
    except (OSError, ValueError):
        return True  # a busy host may not answer
    return pool is not None and (
        pool["waiting"] > 0 or any(one["state"] == "leased" for one in pool["interpreters"])
    )
