"""A server whose pool host has no room for more workers: it says so at once, and the others are served."""

from __future__ import annotations

import time

import pytest
from local_server import TorchServe
from system.conftest import Mar, wait_for_log
from waiting import wait_for

pytestmark = pytest.mark.long

_LIMIT = 144  # TorchServe's frontend begins with 60, and takes fewer for each worker than the pool's host
_ANSWER_S = 60.0  # that a registration took which hung


class _Limited(TorchServe):
    """Started under `ulimit -n`."""

    def command(self, *arguments: str) -> list[str]:
        return ["prlimit", f"--nofile={_LIMIT}:{_LIMIT}", *super().command(*arguments)]


def _has_let_go_of(server: TorchServe, name: str) -> bool:
    """Whether the host has no worker of a model any more, and no trouble."""
    pool = server.pools()["default"]
    return not pool["trouble"] and not any(worker["model"].startswith(name) for worker in pool["workers"])


def test_workers_without_room_are_refused_and_their_neighbours_are_served(mar: Mar) -> None:
    with _Limited() as server:
        assert server.register(mar(server, "quiet", "inside"), initial_workers=2).status == 200
        server.wait_for_interpreters(2)
        archives = [mar(server, f"greedy{index}", "inside") for index in range(10)]
        for archive in archives:
            began = time.monotonic()
            status = server.register(archive, initial_workers=2).status
            assert time.monotonic() - began < _ANSWER_S
            if status != 200:
                break
        assert status == 500
        wait_for_log(server, "raise the limit (`ulimit -n`")
        assert server.predict("quiet", {}).status == 200
        assert server.predict("greedy0", {}).status == 200
        assert "Traceback" not in server.host_log()
        assert "served by a worker process of its own" not in server.model_log()
        assert server.unregister("greedy0").status == 200
        wait_for(lambda: _has_let_go_of(server, "greedy0"), "room for others")
        again = server.register(archives[0], initial_workers=2)
        assert again.status == 200, (again.text, server.model_log()[-3000:], server.host_log()[-3000:])
        assert len(server.ready_workers("quiet")) == 2
