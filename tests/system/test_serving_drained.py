"""SIGTERM to a server in the foreground: it is not ready any more, answers what it is asked, and ends."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from local_server import JSON, TorchServe, free_ports
from system.conftest import Mar
from waiting import NOT_STUCK_S, wait_for

DRAIN_S = 4.0


@dataclass
class Foreground:
    """A server whose ``interpool serve`` has not returned."""

    server: TorchServe
    launcher: subprocess.Popen[bytes]
    probes: str
    direct: str

    def is_ready(self) -> bool:
        assert self.launcher.poll() is None
        try:
            return self.server.request("GET", f"{self.probes}/ready").status == 200
        except OSError:
            return False


@pytest.fixture
def foreground(mar: Mar, request: pytest.FixtureRequest) -> Iterator[Foreground]:
    """Its parameter is INTERPOOL_DRAIN_S."""
    probes, direct = free_ports(2)
    environment = {
        "INTERPOOL_DRAIN_S": request.param,
        "INTERPOOL_METRICS_ADDRESS": f"127.0.0.1:{probes}",
        "INTERPOOL_DIRECT_ADDRESS": f"127.0.0.1:{direct}",
    }
    server = TorchServe(environment=environment, properties={"default_workers_per_model": "2"})
    archive = mar(server, "inside", "inside")
    with (server.root / "start.log").open("wb") as log:
        launcher = subprocess.Popen(
            server.command("--foreground", *server._flags(), "--models", archive),
            cwd=server.root,
            env=server._environment(),
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    found = Foreground(server, launcher, f"http://127.0.0.1:{probes}", f"http://127.0.0.1:{direct}")
    try:
        wait_for(found.is_ready, lambda: f"the server: {(server.root / 'start.log').read_text()}")
        yield found
    finally:
        server._kill()
        launcher.wait()


def _leased(server: TorchServe) -> int:
    states = [one["state"] for one in server.pools()["default"]["interpreters"]["interpreters"]]
    return states.count("leased")


@pytest.mark.parametrize("foreground", [str(DRAIN_S)], indirect=True)
def test_requests_until_the_end_are_answered(foreground: Foreground) -> None:
    server, began = foreground.server, time.monotonic()
    ready = f"{foreground.direct}/v2/models/inside/ready"
    wait_for(lambda: server.request("GET", ready).status == 200, "the model at the direct address")
    with ThreadPoolExecutor(1) as threads:
        long = threads.submit(server.predict, "inside", {"sleep": DRAIN_S + 2})
        wait_for(lambda: _leased(server) == 1, "the call's begin", pause=0.1)
        foreground.launcher.send_signal(signal.SIGTERM)
        wait_for(lambda: not foreground.is_ready(), "the server not to be ready", pause=0.1)
        assert "the server is about to end" in server.request("GET", f"{foreground.probes}/ready").text
        assert server.predict("inside", {}).status == 200
        assert server.request("GET", f"{foreground.direct}/v2/health/ready").status == 503
        assert server.request("GET", ready).status == 503
        answer = server.request("POST", f"{foreground.direct}/predictions/inside", b"{}", JSON)
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert long.result().status == 200
    assert time.monotonic() - began > DRAIN_S + 2
    assert foreground.launcher.wait(NOT_STUCK_S) == 0
    wait_for(lambda: not server.processes(), "the end of all processes")
    assert not list(server.tmp.glob("interpool-server-*"))


@pytest.mark.long
@pytest.mark.parametrize("foreground", ["3600"], indirect=True)
def test_a_second_sigterm_ends_it_at_once(foreground: Foreground) -> None:
    foreground.launcher.send_signal(signal.SIGTERM)
    wait_for(lambda: not foreground.is_ready(), "the server not to be ready", pause=0.1)
    foreground.launcher.send_signal(signal.SIGTERM)
    assert foreground.launcher.wait(NOT_STUCK_S) == 0
    wait_for(lambda: not foreground.server.processes(), "the end of all processes")


@pytest.mark.long
@pytest.mark.parametrize("foreground", ["0"], indirect=True)
def test_without_a_time_to_drain_sigterm_ends_it_at_once(foreground: Foreground) -> None:
    for file in foreground.server.root.rglob(".model_server.pid"):
        file.unlink()  # as what cleans temporary directories does
    foreground.launcher.send_signal(signal.SIGTERM)
    assert foreground.launcher.wait(NOT_STUCK_S) == 0
    wait_for(lambda: not foreground.server.processes(), "the end of all processes")
