"""Models that change what is not their own: no neighbour answers with that."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from local_server import TorchServe, torchserve
from system.conftest import Mar, Pack
from waiting import wait_for

RIGHT = {"numbers": [3.0, 2.0], "text": "[1, 2]", "abs": 1.0, "module": 5.0, "names": [], "blocks": 0}
TRACES = ("leave a hook", "leave a name", "leave in a registry", "set a variable")


@pytest.fixture(scope="module")
def server(mar: Mar, packed: Pack) -> Iterator[TorchServe]:
    with torchserve() as running:
        answer = running.register(mar(running, "careful", packed("careful", "vandal")), initial_workers=2)
        assert answer.status == 200, answer.text
        yield running


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
    "way",
    [
        "patch torch",
        "swap torch",
        "patch a method",
        "delete a builtin",
        "wrap json",
        "leave a mock",
        "forget modules",
        "exchange code",
        *TRACES,
    ],
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
    told = "left traces in" if way in TRACES else "replaced or removed"
    assert f"served by interpreters of its own from now on, as it has {told}" in server.model_log()
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


@pytest.mark.parametrize(
    ("way", "workers"),
    [("patch torch", 1), ("patch torch", 3), ("exchange code", 3), *((way, 3) for way in TRACES)],
)
def test_a_model_that_changes_its_neighbours_while_it_is_loaded_meets_nobody(
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


@pytest.mark.parametrize("isolation", ["own", "process"])
def test_a_model_that_asks_for_it_is_alone_from_the_beginning(
    server: TorchServe, mar: Mar, packed: Pack, isolation: str
) -> None:
    _register(server, mar, packed, "alone", config=f"interpool: {{isolation: {isolation}}}")
    retired = _numbers(server, "retired")
    assert server.predict("alone", {"way": "patch torch"}).json == {"relu": -1.0}
    (pool,) = _served_by(server, "alone")
    assert pool.startswith("own-") if isolation == "process" else _has_own(server, "alone")
    assert server.predict("alone", {}).json == {"relu": -1.0}
    assert _numbers(server, "retired") == retired
    server.unregister("alone")


def test_a_model_whose_traces_do_not_count_is_not_looked_at_and_no_neighbour_is_blamed(
    server: TorchServe, mar: Mar, packed: Pack
) -> None:
    _register(server, mar, packed, "known", config="interpool: {isolation: shared}")
    _register(server, mar, packed, "beside")
    server.predict("known", {"way": "leave a name"})
    for name in ("beside", "known", "beside"):
        for _ in range(4):
            assert server.predict(name, {}).status == 200
    assert not _has_own(server, "known")
    assert not _has_own(server, "beside")
    for name in ("known", "beside"):
        server.unregister(name)


def test_a_model_that_changes_nothing_stays_where_it_is(server: TorchServe, mar: Mar, packed: Pack) -> None:
    _register(server, mar, packed, "harmless")
    for _ in range(12):
        assert server.predict("harmless", {}).status == 200
    assert _served_by(server, "harmless") == ["default"]
    assert _served_by(server, "careful") == ["default"]
    server.unregister("harmless")


def _numbers(server: TorchServe, *states: str) -> set[int]:
    return {
        one["interpreter"]
        for one in server.pools()["default"]["interpreters"]["interpreters"]
        if one["state"] in states
    }


@pytest.mark.long
def test_an_interpreter_in_which_models_fail_that_load_elsewhere_is_retired_and_replaced(
    mar: Mar, packed: Pack
) -> None:
    fragile = packed("fragile", "vandal")
    with torchserve() as server:
        assert server.register(mar(server, "poisoner", packed("poisoner", "vandal"))).status == 200
        wait_for(lambda: len(_numbers(server, "free")) == 2, "both interpreters", pause=0.1)
        assert server.predict("poisoner", {"poison": 1}).status == 200
        names = (f"fragile-{number}" for number in itertools.count())
        registered = []

        def one_is_retired() -> bool:
            name = next(names)
            # Fails where the broken one is tried first.
            if server.register(mar(server, name, fragile)).status == 200:
                registered.append(name)
            return bool(_numbers(server, "retired"))

        wait_for(one_is_retired, lambda: f"an interpreter to be retired: {server.host_log()}")
        assert "is retired: models fail there that load in others" in server.host_log()
        wait_for(lambda: len(_numbers(server, "free", "leased")) == 2, "another one in its place", pause=0.1)
        assert len(_numbers(server, "retired")) == 1
        last = next(names)
        assert server.register(mar(server, last, fragile), initial_workers=2).status == 200
        for name in [*registered, last]:
            assert server.predict(name, {}).text == "well"
