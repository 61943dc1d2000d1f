"""Servers of containers that share /tmp leave each other's files alone."""

from __future__ import annotations

import contextlib
import signal

import psutil
import pytest
from local_server import TorchServe, torchserve
from system.conftest import Mar, cleaned_by_another_container
from waiting import wait_for

pytestmark = pytest.mark.long


def _is_served(server: TorchServe) -> bool:
    return server.predict("inside", {}).status == 200


def test_a_server_goes_on_when_one_of_another_container_starts(mar: Mar) -> None:
    with torchserve(environment={"INTERPOOL_INTERPRETERS": "1"}) as server:
        archive = mar(server, "inside", "inside")
        assert server.register(archive, initial_workers=0).status == 200
        assert cleaned_by_another_container(server) == ""  # no worker holds that, the frontend does
        assert server.scale("inside", 2).status == 200
        assert _is_served(server)
        server.kill_host()
        assert cleaned_by_another_container(server) == ""  # its runtime directory has no host
        wait_for(lambda: _is_served(server), "the next host", pause=0.1)
        while left := server.processes():  # one of them may just have started another
            for process in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGKILL)
            for process in left:
                process.wait(60)
        assert len(cleaned_by_another_container(server).splitlines()) == 1
        assert not list((server.tmp / "models").iterdir())
        assert not list(server.tmp.glob("interpool-server-*"))
