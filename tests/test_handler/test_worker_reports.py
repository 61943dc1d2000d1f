"""What interpreters tell their host."""

from __future__ import annotations

import os
import socket

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


def test_a_report_never_waits_nor_raises() -> None:
    host, inside = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with host, inside:
        for _ in range(10_000):  # more than any buffer holds
            Report("ended", 7, 2, reason="x" * 100_000).send(inside.fileno())
        assert len(Report.receive(host).reason) < 100_000
    Report("loaded", 7, 2).send(-1)
    closed = os.dup(0)
    os.close(closed)
    Report("loaded", 7, 2).send(closed)
