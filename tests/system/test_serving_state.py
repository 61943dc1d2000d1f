"""How long a handler's state lives, behind a real TorchServe: as long as workers of the model do."""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from local_server import JSON, TorchServe
from system.conftest import Mar, Pack
from waiting import wait_for

pytestmark = pytest.mark.long

SEQUENCES = """
sequenceBatching: true
sequenceMaxIdleMSec: 60000
maxSequenceJobQueueSize: 10
maxNumSequence: 16
batchSize: 4
maxBatchDelay: 50
"""
Serve = Callable[..., str]
# Models in use are loaded ahead in other interpreters, where their states are others.
ONE_INTERPRETER = "interpool:\n  pool: one\n  interpreters: 1\n"


@pytest.fixture
def serve(server: TorchServe, mar: Mar, packed: Pack, request: pytest.FixtureRequest) -> Serve:
    """Registers the counting handler under a name; gives the name."""

    def register(name: str, config: str = "", model: str = "counter", **query: object) -> str:
        archive = mar(server, name, packed(model, "stateful"), config=config)
        answer = server.register(archive, **query)
        assert answer.status == 200, f"{answer.text}\n{server.model_log()[-5000:]}"
        request.addfinalizer(lambda: server.unregister(name))
        return name

    return register


def _count(server: TorchServe, name: str, **wish: object) -> int:
    answer = server.predict(name, wish)
    assert answer.status == 200, answer.text
    return int(answer.json["count"])


def _wait_until_ready(server: TorchServe, name: str) -> None:
    def ready() -> bool:
        return [each["status"] for each in server.describe(name)[0]["workers"]] == ["READY"]

    wait_for(ready, f"{name}'s worker")


def test_a_models_state_stays_while_one_of_its_workers_lives(server: TorchServe, serve: Serve) -> None:
    name = serve("counts", ONE_INTERPRETER, initial_workers=2)
    assert [_count(server, name) for _ in range(2)] == [1, 2]  # both workers, one after the other or not
    assert server.scale(name, 1).status == 200
    assert _count(server, name) == 3
    # A worker that ended itself begins anew, and so do those that were scaled away and back.
    assert server.predict(name, {"exit": 1}).status == 500
    _wait_until_ready(server, name)
    assert _count(server, name) == 1
    assert server.scale(name, 0).status == 200
    assert server.scale(name, 1).status == 200
    assert _count(server, name) == 1


def test_workers_with_states_of_their_own_count_by_themselves(
    server: TorchServe, serve: Serve, tmp_path: Path
) -> None:
    """As in stock: three workers, two interpreters, and each worker counts what it answered."""
    name = serve("own", "interpool:\n  state: worker\n", initial_workers=3)
    seen: dict[int, list[int]] = {}
    for round_ in range(4):
        gate = tmp_path / f"gate{round_}"
        with ThreadPoolExecutor(3) as threads:
            asked = [threads.submit(server.predict, name, {"until": str(gate)}) for _ in range(3)]
            gate.touch()
            for answer in (each.result().json for each in asked):
                seen.setdefault(answer["worker"], []).append(answer["count"])
    assert len(seen) > 1
    for counts in seen.values():
        assert sorted(counts) == list(range(1, len(counts) + 1)), seen


def test_a_sequence_stays_in_one_interpreter(server: TorchServe, serve: Serve) -> None:
    name = serve("sequences", SEQUENCES, "sequences", initial_workers=3)

    def ask(sequence: int) -> list[int]:
        name_of_it = {"ts_request_sequence_id": f"s{sequence}"}
        first = {**name_of_it, "ts_request_sequence_start": "true"}
        return [_in_sequence(server, name, name_of_it if past else first) for past in range(5)]

    with ThreadPoolExecutor(8) as threads:
        counts = list(threads.map(ask, range(8)))
    assert counts == [[1, 2, 3, 4, 5]] * 8


def _in_sequence(server: TorchServe, name: str, headers: dict[str, str]) -> int:
    # Not urllib, which changes the case of headers' names: TorchServe minds it here.
    connection = http.client.HTTPConnection(server.inference.removeprefix("http://"), timeout=60)
    with contextlib.closing(connection):
        connection.request("POST", f"/predictions/{name}", b"{}", {"Content-Type": JSON, **headers})
        answer = json.loads(connection.getresponse().read())
    assert "count" in answer, answer
    return int(answer["count"])
