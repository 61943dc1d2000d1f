"""A server whose pool host has no room for more workers: it says so at once, and the others are served."""

from __future__ import annotations

import time

from local_server import TorchServe
from system.conftest import Mar, wait_for_log
from waiting import wait_for

_LIMIT = 192
_ANSWER_S = 60.0  # that a registration took which hung


class _Limited(TorchServe):
    """Started under `ulimit -n`."""

    def command(self, *arguments: str) -> list[str]:
        return ["prlimit", f"--nofile={_LIMIT}:{_LIMIT}", *super().command(*arguments)]


def test_workers_for_whom_there_is_no_room_are_refused_and_their_neighbours_are_served(mar: Mar) -> None:
    with _Limited() as server:
        assert server.register(mar(server, "first", "inside"), initial_workers=2).status == 200
        server.wait_for_interpreters(2)
        began = time.monotonic()
        assert server.register(mar(server, "second", "inside"), initial_workers=24).status == 500
        assert time.monotonic() - began < _ANSWER_S
        wait_for_log(server, "raise the limit (`ulimit -n`")
        assert server.predict("first", {}).status == 200
        assert "Traceback" not in server.host_log()
        assert "served by a worker process of its own" not in server.model_log()
        wait_for(lambda: len(server.ready_workers("first")) == 2, "the neighbour's workers")
        assert server.register(mar(server, "third", "inside"), initial_workers=2).status == 200
        assert server.predict("third", {}).status == 200
