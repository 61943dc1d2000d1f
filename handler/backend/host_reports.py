"""Reports to the pool's host what happened to a worker in this interpreter."""

from __future__ import annotations

import time

from interpool.handler.backend import stdio
from interpool.handler.backend.lost_devices import lost_device
from interpool.handler.log_format import named
from interpool.handler.torchserve import ts_log_line
from interpool.handler.worker_reports import Kind, Report
from interpool.handler.worker_token import WorkerToken
from interpool.native.inside import interpreter_id


def report(
    token: WorkerToken, kind: Kind, reason: str = "", began: float | None = None, *, model: str = ""
) -> None:
    """Report what happened to the host, and write the reason, if there is one, to TorchServe's log.

    Args:
        token: of the worker to which it happened.
        kind: what happened.
        reason: why, for people.
        began: when the load began, in seconds of ``time.monotonic``; None if nothing was loaded.
        model: the name that the worker's model is registered by.
    """
    if reason:
        print(ts_log_line(f"{reason}{named(stdio.requests())}"))
    seconds = 0.0 if began is None else time.monotonic() - began
    Report(kind, token.pid, interpreter_id() or 0, seconds, reason, model).send(token.reports)


def report_lost_device(token: WorkerToken) -> bool:
    """Return whether this process has lost its GPU. If so, the host ends after the worker's answer."""
    reason = lost_device()
    if reason:
        report(token, "device_lost", f"this process can use its GPU no more: {reason}")
    return bool(reason)
