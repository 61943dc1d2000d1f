"""What the host knows of one worker, beside what becomes of it (test_pool_host.py)."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from extracted import extracted

from interpool.handler.config import HostSettings
from interpool.handler.host.control import Registration
from interpool.handler.host.service_entry import LOAD_LIMIT_S
from interpool.handler.host.worker import Worker


@pytest.mark.parametrize(
    ("config", "seconds"),
    [("startupTimeout: 300", 300), ("minWorkers: 1", LOAD_LIMIT_S), ("interpool: {", LOAD_LIMIT_S)],
)
def test_a_workers_load_may_take_as_long_as_torchserve_waits(
    tmp_path: Path, config: str, seconds: float
) -> None:
    (tmp_path / "config.yaml").write_text(config)
    extracted(tmp_path, handler="handler.py", configFile="config.yaml")
    shim, peer = socket.socketpair()
    with shim, peer:
        registration = Registration(1, "unix:/s", str(tmp_path), "", [])
        worker = Worker(peer, registration, (-1, -1), HostSettings.of_environment({}), ordinary=True)
        assert worker.load_limit_s == seconds


def test_the_direct_address_gets_the_reason_why_the_pool_does_not_serve_its_model(tmp_path: Path) -> None:
    extracted(tmp_path, handler="handler.py")
    direct, peer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    direct.settimeout(5)
    with direct, peer:
        registration = Registration(1, "direct:1", str(tmp_path), "", [], channel=1)
        worker = Worker(peer, registration, (-1, -1), HostSettings.of_environment({}), ordinary=True)
        worker.hand_over("it handles signals")
        assert direct.recv(100) == b"stock\0it handles signals"
