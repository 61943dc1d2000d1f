"""A server whose cache is removed, or cannot be written any more: its models go on, and new ones come."""

from __future__ import annotations

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from linked_tree import OTHER_SLOTS, link_cache
from local_server import INTERPOOL, TorchServe, torchserve
from system.conftest import Mar
from waiting import wait_for


def _own_cache(directory: Path) -> Path:
    """A cache like this one's, with files for one interpreter; gives the part that all is in."""
    return link_cache(directory / "cache", *OTHER_SLOTS)


def _remove(cache: Path) -> None:
    """At one moment, as the server may be making files in it."""
    gone = cache.with_name("gone")
    cache.rename(gone)
    shutil.rmtree(gone)


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
    cache = _own_cache(tmp_path)
    environment = {
        "INTERPOOL_CACHE": str(cache.parent),
        "INTERPOOL_INTERPRETERS": "1",
        "INTERPOOL_CEILING": "2",
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


def test_a_plain_torchserve_goes_on_when_the_cache_was_removed(mar: Mar, tmp_path: Path) -> None:
    """Its home may lie there, if a variable names the cache: then a host makes it again."""
    cache = _own_cache(tmp_path)
    named = {"INTERPOOL_CACHE": str(cache.parent)}
    asked = subprocess.run(
        [*INTERPOOL, "home"], env={**os.environ, **named}, capture_output=True, text=True, check=True
    )
    home = Path(asked.stdout.strip())
    assert cache.parent in home.parents
    environment = {**named, "TS_MODEL_SERVER_HOME": str(home)}
    with TorchServe(overlay=False, environment=environment) as server:
        assert server.register(mar(server, "first", "inside")).status == 200
        _remove(cache.parent)
        wait_for((home / "interpool-overlay").exists, lambda: f"the home: {server.host_log()[-2000:]}")
        assert server.scale("first", 2).status == 200
        assert server.register(mar(server, "second", "inside")).status == 200
        assert _pid(server, "first") == _pid(server, "second")
        assert "was gone, and is made again" in server.host_log()
