"""The neighbour benchmark: its load is what it says, or it fails."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest
from local_server import Answer
from waiting import wait_for

from benchmarks.neighbour import benchmark as neighbour


@dataclass
class Refusing:
    """A server that answers nobody."""

    asked: int = 0

    def predict(self, _model: str, _value: object, **_more: object) -> Answer:
        self.asked += 1
        return Answer(503, b"no worker", {})


def test_greedy_clients_that_are_refused_fail_the_turn_when_it_is_over() -> None:
    server = Refusing()
    greedy = neighbour.Greedy(cast(Any, server), "greedy", 0.2)
    with pytest.raises(RuntimeError, match="not answered: 503 no worker"), greedy:
        wait_for(lambda: server.asked, "a request")
