"""A model that loses the process's GPU: its neighbours are served again at once, and it apart from them."""

from __future__ import annotations

import pytest
from local_server import TorchServe
from system.conftest import Mar, Pack
from waiting import wait_for

pytestmark = pytest.mark.long


def _pids(server: TorchServe) -> dict[str, int]:
    """The processes of the pools, by the pools' names."""
    return {name: pool["pid"] for name, pool in server.pools().items()}


def _answers(server: TorchServe, model: str) -> bool:
    answer = server.predict(model, 2)
    return answer.status == 200 and answer.json == [4.0, 5.0]


def test_the_host_leaves_after_the_answer_and_the_next_serves_the_other_models(
    server: TorchServe, mar: Mar, packed: Pack
) -> None:
    for name, workers in (("table", 2), ("neighbour", 1)):
        answer = server.register(mar(server, name, packed("table", "losing")), initial_workers=workers)
        assert answer.status == 200, answer.text
    assert _answers(server, "table")
    assert _answers(server, "neighbour")
    (first,) = _pids(server).values()
    lost = server.predict("table", 4)
    assert lost.status == 503, lost.text
    assert "device-side assert triggered" in lost.text
    wait_for(lambda: first not in _pids(server).values(), "the end of the host")
    for model in ("neighbour", "table"):
        wait_for(lambda model=model: _answers(server, model), lambda: server.host_log()[-2000:])
    after = _pids(server)
    own = after.keys() - {"default"}
    assert len(own) == 1, (server.pools(), server.host_log()[-4000:])
    (apart,) = own
    assert apart.startswith("own-")
    assert "is served by a process of its own until the server ends" in server.host_log()
    again = server.predict("table", 4)
    assert again.status == 503
    wait_for(lambda: _pids(server).get(apart) not in (after[apart], None), "the next process of its own")
    wait_for(lambda: _answers(server, "table"), "the table's next answer")
    assert _answers(server, "neighbour")
    assert _pids(server)["default"] == after["default"]
