"""Several models on one server: shares, turns, and which interpreters keep which models."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from local_server import TorchServe
from system.conftest import Mar
from waiting import wait_for

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def server() -> Iterator[TorchServe]:
    with TorchServe(environment={"INTERPOOL_IDLE_MODEL_S": "4"}) as running:
        yield running


def _register(server: TorchServe, mar: Mar, name: str, workers: int = 1, config: str = "") -> None:
    answer = server.register(mar(server, name, "inside", config=config), initial_workers=workers)
    assert answer.status == 200, answer.text + server.model_log()[-3000:]


def _stats(server: TorchServe) -> dict[str, Any]:
    """What the one pool's interpreters do."""
    (pool,) = server.pools().values()
    found: dict[str, Any] = pool["interpreters"]
    return found


def _count(server: TorchServe, what: str) -> int:
    return sum(int(each[what]) for each in _stats(server)["models"].values())


def test_a_model_has_no_more_interpreters_than_its_share(
    server: TorchServe, mar: Mar, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    with ThreadPoolExecutor(4) as threads:  # of two interpreters
        _register(server, mar, "greedy", workers=4, config="interpool: {share: 1}")
        _register(server, mar, "quiet")
        jobs = [threads.submit(server.predict, "greedy", {"until": str(gate)}, 120) for _ in range(4)]
        try:
            wait_for(lambda: _count(server, "waiting") == 3, "the share to hold back the others", pause=0.1)
            assert _count(server, "running") == 1
            assert server.predict("quiet", {}).status == 200
        finally:
            gate.touch()
        assert [job.result().status for job in jobs] == [200] * 4
    for name in ("greedy", "quiet"):
        assert server.unregister(name).status == 200


def test_a_model_in_use_is_loaded_ahead_and_an_idle_one_dropped_but_for_one_copy(
    server: TorchServe, mar: Mar
) -> None:
    server.begin_logs()
    _register(server, mar, "inside")  # one worker, two interpreters

    def is_loaded_everywhere() -> bool:
        assert server.predict("inside", {}).status == 200
        return server.model_log().count("inside is initialized") >= 2

    wait_for(is_loaded_everywhere, "the model to be loaded ahead")
    # The host says so after the model has.
    said = re.compile(r"interpreter \d loaded \S+ ahead")
    wait_for(lambda: said.search(server.host_log()) is not None, "the host to say so")

    def copies() -> int:
        return sum(len(each["affinities"]) for each in _stats(server)["interpreters"])

    wait_for(lambda: "dropped" in server.host_log(), "the idle model to be dropped")
    wait_for(lambda: copies() == 1, "no other copy")  # nor one of a model that was unregistered
    assert server.predict("inside", {}).status == 200
    assert server.unregister("inside").status == 200
