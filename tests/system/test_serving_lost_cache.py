"""A server whose cache cannot be written any more: its models go on, and new ones come."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from linked_tree import OTHER_SLOTS, link_cache
from local_server import TorchServe, torchserve
from system.conftest import Mar
from waiting import wait_for

pytestmark = pytest.mark.long


def _pid(server: TorchServe, name: str) -> int:
    answer = server.predict(name, {})
    assert answer.status == 200, answer.text + server.host_log()
    return int(answer.json["pid"])


def _interpreters(server: TorchServe) -> int:
    (pool,) = server.pools().values()
    return sum(one["state"] in ("free", "leased") for one in pool["interpreters"]["interpreters"])


def test_models_go_on_and_new_ones_are_served_while_the_cache_cannot_be_written(
    mar: Mar, tmp_path: Path
) -> None:
    cache = link_cache(tmp_path / "cache", *OTHER_SLOTS)  # with files for one interpreter
    environment = {
        "INTERPOOL_CACHE": str(cache.parent),
        "INTERPOOL_INTERPRETERS": "1",
        "INTERPOOL_MAX_INTERPRETERS": "2",
    }
    with torchserve(environment=environment) as server:
        assert server.register(mar(server, "first", "inside"), initial_workers=2).status == 200
        host = _pid(server, "first")
        shutil.rmtree(cache)
        cache.touch()
        assert _pid(server, "first") == host
        assert server.register(mar(server, "second", "inside")).status == 200
        assert _pid(server, "second") == host
        assert server.unregister("first").status == 200
        assert server.register(mar(server, "first", "inside"), initial_workers=2).status == 200
        with ThreadPoolExecutor(2) as clients:  # calls that wait have the pool grow

            def both() -> bool:
                asked = [clients.submit(server.predict, "first", {"sleep": 1}) for _ in range(2)]
                assert all(each.result().status == 200 for each in asked), server.host_log()
                return _interpreters(server) == 2

            wait_for(both, lambda: f"the pool to grow: {server.host_log()}")
        assert _pid(server, "first") == _pid(server, "second") == host
        assert server.host_log().count("cannot write to the cache directory") == 1
