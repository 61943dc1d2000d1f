"""Calls that never come back, beside an innocent model that goes on answering."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from clients import Load
from linked_tree import OTHER_SLOTS, link_cache
from local_server import TorchServe, torchserve
from system.conftest import Mar, Pack
from waiting import wait_for

from interpool.native.provision import libpython_path

# Code that is interrupted, and native code, which cannot be.
INTERRUPTIBLE = ["loop", "nap"]
NATIVE = ["hold the GIL", "sleep in C"]


@pytest.fixture(scope="module", autouse=True)
def _innocent_model(server: TorchServe, mar: Mar) -> None:
    answer = server.register(mar(server, "innocent", "inside"), initial_workers=2)
    assert answer.status == 200, answer.text


def _pool(server: TorchServe) -> dict[str, Any]:
    (pool,) = server.pools().values()
    return pool


def _count(server: TorchServe, state: str) -> int:
    return sum(one["state"] == state for one in _pool(server)["interpreters"]["interpreters"])


def _is_whole(server: TorchServe) -> bool:
    """Whether it has its two interpreters, and no call that was given up runs any more."""
    pool = _pool(server)
    able = [one for one in pool["interpreters"]["interpreters"] if one["state"] in ("free", "leased")]
    return len(able) == 2 and not any(one["state"] == "ending" for one in pool["workers"])


@contextmanager
def _innocent(server: TorchServe) -> Iterator[Load]:
    """A client of the innocent model that asks all the time, and is always answered."""
    with Load(lambda: server.predict("innocent", {"sleep": 0.01}, timeout=60).status) as client:
        yield client
    assert (client.answers.keys(), client.failures) == ({"200"}, [])


def _register(
    server: TorchServe,
    mar: Mar,
    packed: Pack,
    name: str,
    config: str = "",
    model: str = "stuck",
    **query: Any,
) -> None:
    archive = mar(server, name, packed(model, "stuck"), config=config)
    answer = server.register(archive, **{"response_timeout": 2, **query})
    assert answer.status == 200, answer.text + server.host_log()[-3000:]


def _answers_again(server: TorchServe, name: str) -> None:
    wait_for(lambda: server.predict(name, {}).status == 200, lambda: f"{name} to answer: {server.host_log()}")


@pytest.mark.parametrize(
    "way",
    ["hold the GIL", *(pytest.param(way, marks=pytest.mark.long) for way in ("nap", "loop", "sleep in C"))],
)
def test_a_call_that_torchserve_has_given_up_is_ended_and_others_are_served_meanwhile(
    server: TorchServe, mar: Mar, packed: Pack, way: str
) -> None:
    name = way.replace(" ", "-")
    _register(server, mar, packed, name)
    retired = _count(server, "retired")
    with _innocent(server) as client:
        assert server.predict(name, {"way": way}).status == 500
        seen = client.answers.total()
        wait_for(lambda: client.answers.total() > seen + 10, "answers meanwhile")
        _answers_again(server, name)
        if way in NATIVE:
            wait_for(
                lambda: _count(server, "retired") == retired + 1, "its interpreter to be retired", pause=0.1
            )
        wait_for(lambda: _is_whole(server), lambda: f"a whole pool: {_pool(server)}", pause=0.1)
    assert _count(server, "retired") == retired + (way in NATIVE)
    server.unregister(name)


@pytest.mark.long
def test_a_model_that_holds_every_interpreter_does_not_keep_the_others_waiting(
    mar: Mar, packed: Pack
) -> None:
    environment = {"INTERPOOL_INTERPRETERS": "1"}
    # The server ends first: TorchServe answers no client whose model is unregistered meanwhile.
    with ThreadPoolExecutor(4) as threads, torchserve(environment=environment) as server:
        assert server.register(mar(server, "innocent", "inside")).status == 200
        _register(server, mar, packed, "bad", initial_workers=4, response_timeout=100)
        jobs = [threads.submit(server.predict, "bad", {"way": "hold the GIL"}, 200) for _ in range(4)]
        wait_for(lambda: _count(server, "leased") == 1, "the bad model to have them all", pause=0.1)
        assert server.predict("innocent", {}).status == 200  # long before the bad model's time is over
        assert not any(job.done() for job in jobs)
        assert _pool(server)["interpreters"]["max_size"] > 1
        server.unregister("bad")
        wait_for(
            lambda: _pool(server)["interpreters"]["max_size"] == 1,
            lambda: f"the pool to have its size again: {_pool(server)}",
            pause=0.1,
        )


@pytest.mark.long
def test_a_model_whose_calls_do_not_come_back_gets_processes_of_its_own(mar: Mar, packed: Pack) -> None:
    with torchserve() as server:
        assert server.register(mar(server, "innocent", "inside")).status == 200
        _register(server, mar, packed, "bad")
        with _innocent(server):
            for retired in (1, 2, 3):
                assert server.predict("bad", {"way": "hold the GIL"}).status == 500
                wait_for(
                    lambda retired=retired: _count(server, "retired") == retired,
                    "the interpreter's end",
                    pause=0.1,
                )
                _answers_again(server, "bad")
            assert "3 of its calls did not come back" in server.model_log()
            # TorchServe can kill that.
            assert server.predict("bad", {"way": "hold the GIL"}).status == 500
            _answers_again(server, "bad")
        assert _count(server, "retired") == 3
        assert [worker["model"] for worker in _pool(server)["workers"] if worker["state"] == "connected"] == [
            "innocent/1.0"
        ]


@pytest.mark.long
def test_a_call_that_takes_longer_than_its_limit_answers_and_its_worker_goes_on(
    server: TorchServe, mar: Mar, packed: Pack
) -> None:
    """The limit is the call's, and not that of a load which takes longer."""
    limit = "interpool: {call_limit: 0.5}"
    _register(server, mar, packed, "limited", config=limit, model="slow_to_load", response_timeout=100)
    (before,) = server.describe("limited")[0]["workers"]
    answer = server.predict("limited", {"way": "nap"})
    assert answer.status == 500
    assert "the call took longer than it may, and was interrupted" in answer.text
    assert server.predict("limited", {}).json == {"calls": 1}
    (after,) = server.describe("limited")[0]["workers"]
    assert after["pid"] == before["pid"]
    server.unregister("limited")


def _cache_for_one(directory: Path) -> Path:
    """A cache like this one, in which every other interpreter's libpython is damaged."""
    cache = directory / "cache"
    link_cache(cache, *OTHER_SLOTS)
    name = libpython_path().name
    for whole in list(cache.glob(f"*/slots/0001/*/{name}")):
        for number in range(2, 40):
            place = whole.parents[2] / f"{number:04}" / whole.parent.name / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.unlink(missing_ok=True)
            with place.open("wb") as file:
                file.truncate(whole.stat().st_size)
    return cache


@pytest.mark.long
def test_a_pool_that_has_lost_its_last_interpreter_and_cannot_start_one_is_replaced(
    server: TorchServe, mar: Mar, packed: Pack, tmp_path: Path
) -> None:
    environment = {"INTERPOOL_INTERPRETERS": "1", "INTERPOOL_CACHE": str(_cache_for_one(tmp_path))}
    with torchserve(environment=environment) as alone:
        assert alone.register(mar(alone, "innocent", "inside")).status == 200  # and is not asked meanwhile
        _register(alone, mar, packed, "bad")
        (host,) = alone.hosts()
        assert alone.predict("bad", {"way": "hold the GIL"}).status == 500
        _answers_again(alone, "bad")
        _answers_again(alone, "innocent")
        assert "no interpreter is left, and none starts" in alone.host_log()
        assert [each.pid for each in alone.hosts()] != [host.pid]
