"""What interpreters report to their host."""

from __future__ import annotations

import json
import os
import socket
from typing import Any

import pytest

from interpool.handler.worker_reports import Report


def test_a_report_arrives_as_it_was_sent() -> None:
    host, inside = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with host, inside:
        sent = Report("load_failed", 7, 2, 0.5, "no vocabulary “here”")
        sent.send(inside.fileno())
        assert Report.receive(host) == sent
        host.setblocking(False)
        with pytest.raises(BlockingIOError):
            Report.receive(host)


def test_a_report_arrives_though_a_model_has_replaced_the_encoder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host, inside = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with host, inside:
        sent = Report("traces", 7, 2, reason="it has replaced json.JSONEncoder.encode")
        with monkeypatch.context() as patched:
            patched.setattr(json.JSONEncoder, "encode", lambda *_: "{}")
            patched.setattr(json.JSONEncoder, "iterencode", lambda *_: iter(["{}"]))
            patched.setattr(json, "dumps", lambda *_: "{}")
            sent.send(inside.fileno())
        assert Report.receive(host) == sent


@pytest.mark.parametrize("default", [None, 600.0])
def test_a_report_never_waits_nor_raises(monkeypatch: pytest.MonkeyPatch, default: float | None) -> None:
    """Not by the default timeout of sockets that a model has chosen, either."""
    monkeypatch.setattr(socket, "socket", _with_timeout(default))
    host, inside = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with host, inside:
        for _ in range(10_000):  # more than any buffer holds
            Report("ended", 7, 2, reason="x" * 100_000).send(inside.fileno())
        assert len(Report.receive(host).reason) < 100_000
    Report("loaded", 7, 2).send(-1)
    closed = os.dup(0)
    os.close(closed)
    Report("loaded", 7, 2).send(closed)


def _with_timeout(default: float | None) -> type[socket.socket]:
    class Socket(socket.socket):
        def __init__(self, *args: Any, **keywords: Any) -> None:
            super().__init__(*args, **keywords)
            self.settimeout(default)  # all code in the process shares it

    return Socket
