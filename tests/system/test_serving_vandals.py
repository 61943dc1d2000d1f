"""Models that change what is not their own: no neighbour answers with that."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from local_server import TorchServe
from system.conftest import Mar, Pack
from waiting import wait_for

RIGHT = {"relu": 3.0, "module": 5.0, "blocks": 0}
TRACES = ("leave a hook", "set a variable")


@pytest.fixture(scope="module", autouse=True)
def _careful(server: TorchServe, mar: Mar, packed: Pack) -> None:
    answer = server.register(mar(server, "careful", packed("careful", "vandal")), initial_workers=2)
    assert answer.status == 200, answer.text


def _served_by(server: TorchServe, name: str) -> list[str]:
    """The pools that serve a model."""
    return [
        pool
        for pool, state in server.pools().items()
        if any(one["model"] == f"{name}/1.0" and one["state"] == "connected" for one in state["workers"])
    ]


def _has_own(server: TorchServe, name: str) -> bool:
    """Whether interpreters of the default pool serve the model, and no other one since they do."""
    pool = server.pools()["default"]
    (directory,) = {one["model_dir"] for one in pool["workers"] if one["model"] == f"{name}/1.0"}
    own = [one for one in pool["interpreters"]["interpreters"] if one["owner"] == directory]
    return bool(own) and all(one["affinities"] in ([], [directory]) for one in own)


def _register(
    server: TorchServe, mar: Mar, packed: Pack, name: str, config: str = "", workers: int = 1
) -> None:
    archive = mar(server, name, packed("vandal", "vandal"), config=config)
    answer = server.register(archive, initial_workers=workers)
    assert answer.status == 200, answer.text + server.model_log()[-3000:]


@pytest.mark.parametrize(
    "way", ["patch torch", "exchange code", *(pytest.param(way, marks=pytest.mark.long) for way in TRACES)]
)
def test_a_model_that_changes_its_neighbours_gets_its_own_and_they_answer_as_before(
    server: TorchServe, mar: Mar, packed: Pack, way: str
) -> None:
    name = way.replace(" ", "-")
    _register(server, mar, packed, name)
    assert server.predict("careful", {}).json == RIGHT
    server.predict(name, {"way": way})
    for _ in range(20):
        assert server.predict("careful", {}).json == RIGHT
    assert server.predict(name, {}).status == 200
    assert _served_by(server, name) == ["default"]
    assert _has_own(server, name)
    reason = "left traces in" if way in TRACES else "replaced or removed"
    assert f"served by interpreters of its own from now on, as it has {reason}" in server.model_log()
    server.unregister(name)
    for _ in range(6):
        assert server.predict("careful", {}).json == RIGHT


def test_a_model_that_has_behaved_for_long_is_found_out_before_a_neighbour_is_served(
    server: TorchServe, mar: Mar, packed: Pack
) -> None:
    _register(server, mar, packed, "late")
    for _ in range(30):
        assert server.predict("late", {}).json == {"relu": 3.0}
    for _ in range(2):  # one of them is not looked at
        server.predict("late", {"way": "patch torch"})

    def is_found_out() -> bool:
        with ThreadPoolExecutor(4) as threads:  # in both interpreters, of which one may be as it was
            answers = list(threads.map(lambda _: server.predict("careful", {}).json, range(8)))
        assert answers == [RIGHT] * 8
        return _has_own(server, "late")

    wait_for(is_found_out, "it to be found out", pause=0.1)
    server.unregister("late")


@pytest.mark.long
@pytest.mark.parametrize(
    ("way", "workers"),
    [("patch torch", 3), ("leave a hook", 1)],
)
def test_a_model_that_changes_its_neighbours_while_it_is_loaded_changes_none(
    server: TorchServe, mar: Mar, packed: Pack, way: str, workers: int
) -> None:
    name = way.replace(" ", "-") + "-at-load"
    _register(server, mar, packed, name, workers=workers)
    for _ in range(20):
        assert server.predict("careful", {}).json == RIGHT
    # Its own way.
    assert server.predict(name, {}).json == {"relu": -1.0 if way == "patch torch" else 3.0}
    assert _has_own(server, name)
    with ThreadPoolExecutor(8) as threads:
        answers = [threads.submit(server.predict, each, {}) for each in (name, "careful") * 8]
        assert {answer.result().status for answer in answers} == {200}
    server.unregister(name)
    for _ in range(6):
        assert server.predict("careful", {}).json == RIGHT


@pytest.mark.long
@pytest.mark.parametrize("isolation", ["own", "process"])
def test_a_model_that_asks_for_it_is_alone_from_the_beginning(
    server: TorchServe, mar: Mar, packed: Pack, isolation: str
) -> None:
    wait_for(lambda: _owners_are_registered(server), "interpreters of unregistered models to be retired")
    _register(server, mar, packed, "alone", config=f"interpool: {{isolation: {isolation}}}")
    retired = _retired(server)
    assert server.predict("alone", {"way": "patch torch"}).json == {"relu": -1.0}
    (pool,) = _served_by(server, "alone")
    assert pool.startswith("own-") if isolation == "process" else _has_own(server, "alone")
    assert server.predict("alone", {}).json == {"relu": -1.0}
    assert _retired(server) == retired
    server.unregister("alone")


def test_a_model_whose_traces_do_not_count_is_not_looked_at_and_no_neighbour_is_blamed(
    server: TorchServe, mar: Mar, packed: Pack
) -> None:
    _register(server, mar, packed, "known", config="interpool: {isolation: shared}")
    _register(server, mar, packed, "beside")
    server.predict("known", {"way": "leave a hook"})
    for name in ("beside", "known", "beside"):
        for _ in range(4):
            assert server.predict(name, {}).status == 200
    assert not _has_own(server, "known")
    assert not _has_own(server, "beside")
    for name in ("known", "beside"):
        server.unregister(name)


def _owners_are_registered(server: TorchServe) -> bool:
    """Whether each interpreter that a model has for itself belongs to a model that is registered."""
    interpreters = server.pools()["default"]["interpreters"]["interpreters"]
    owners = {one["owner"] for one in interpreters if one["owner"] and one["state"] != "retired"}
    return all(os.path.isdir(owner) for owner in owners)


def _retired(server: TorchServe) -> set[int]:
    return {
        one["interpreter"]
        for one in server.pools()["default"]["interpreters"]["interpreters"]
        if one["state"] == "retired"
    }
