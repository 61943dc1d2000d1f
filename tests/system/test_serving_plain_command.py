"""A TorchServe that its own command starts, with the home that `interpool home` prints."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from linked_tree import OTHER_SLOTS, link_cache
from local_server import INTERPOOL, TorchServe
from system.conftest import Mar, cleaned_by_another_container, wait_for_log
from waiting import wait_for

pytestmark = pytest.mark.long


def _plain(environment: dict[str, str]) -> TorchServe:
    command = [*INTERPOOL, "home"]
    settings = {**os.environ, **environment}
    home = subprocess.run(command, env=settings, capture_output=True, text=True, check=True).stdout.strip()
    return TorchServe(overlay=False, environment={"TS_MODEL_SERVER_HOME": home, **environment})


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TorchServe]:
    """With a cache of its own, in which its home lies."""
    cache = link_cache(tmp_path_factory.mktemp("cached") / "cache", *OTHER_SLOTS)
    with _plain({"INTERPOOL_CACHE": str(cache.parent), "INTERPOOL_INTERPRETERS": "1"}) as running:
        yield running


def _pid(server: TorchServe, name: str) -> int:
    answer = server.predict(name, {})
    assert answer.status == 200, answer.text + server.host_log()
    return int(answer.json["pid"])


def test_the_pool_serves_and_its_workers_hold_what_torchserve_has_extracted(
    server: TorchServe, mar: Mar
) -> None:
    assert server.register(mar(server, "held", "inside")).status == 200
    assert cleaned_by_another_container(server) == ""
    (host,) = server.hosts()
    assert _pid(server, "held") == host.pid
    assert server.unregister("held").status == 200


def test_a_server_goes_on_when_the_cache_was_removed(server: TorchServe, mar: Mar) -> None:
    """A host makes the home again."""
    assert server.register(mar(server, "first", "inside")).status == 200
    cache = Path(server.environment["INTERPOOL_CACHE"])
    home = Path(server.environment["TS_MODEL_SERVER_HOME"])
    assert cache in home.parents
    gone = cache.with_name("gone")
    cache.rename(gone)  # at one moment, as the server may be making files in it
    shutil.rmtree(gone)
    wait_for((home / "interpool-overlay").exists, lambda: f"the home: {server.host_log()[-2000:]}")
    assert server.scale("first", 2).status == 200
    assert server.register(mar(server, "second", "inside")).status == 200
    assert _pid(server, "first") == _pid(server, "second")
    assert "was gone, and is made again" in server.host_log()
    for name in ("first", "second"):
        assert server.unregister(name).status == 200


def test_a_pool_that_cannot_start_says_why_in_the_model_log(mar: Mar) -> None:
    """`interpool serve` would not have started."""
    with _plain({"INTERPOOL_INTERPRETERS": "many"}) as server:
        answer = server.register(mar(server, "inside", "inside"), initial_workers=2)
        assert answer.status == 500
        wait_for(lambda: server.hosts() == [], "the host to end", pause=0.1)
        wait_for_log(server, "`INTERPOOL_INTERPRETERS`: Input should be a valid integer")
