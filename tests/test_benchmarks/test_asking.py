"""Who has answered: by what TorchServe's log says of this asker's requests, and of no other's."""

from __future__ import annotations

import json
import math
import time
from typing import Any, cast

import pytest
from local_server import Answer, TorchServe

from benchmarks.shared.asking import Asker


class Server:
    """Answers alike, and logs what its workers say, in turns."""

    def __init__(self, said: Any, workers: list[int], status: int = 200) -> None:
        self._said = said
        self._status = status
        self.workers = workers
        self._log: list[str] = []

    def predict(self, model: str, value: dict[str, str], timeout: float) -> Answer:
        assert timeout > 0
        worker = self.workers[len(self._log) % len(self.workers)]
        self._log.append(f"2026 INFO W-{worker}-{model}_1.0-stdout MODEL_LOG - answered {value['id']}\n")
        return Answer(self._status, json.dumps(self._said).encode(), {})

    def model_log(self) -> str:
        return "".join(self._log)


def asker_of(server: Server, expected: list[float]) -> Asker:
    return Asker(cast(TorchServe, server), "m", expected)


def test_it_asks_until_every_worker_has_answered() -> None:
    asker = asker_of(Server([1.0, 2.0], [9000, 9001, 9002]), [1.0, 2.0])
    began = time.perf_counter()
    last = asker.until(3)
    assert asker.firsts().keys() == {"9000", "9001", "9002"}
    assert began < last < time.perf_counter()
    assert asker.first_over_median() > 0


def workers_of(server: Server) -> set[str]:
    """Those of its two workers that an asker finds, which is gone then."""
    asker = asker_of(server, [1.0])
    asker.until(2)
    return set(asker.firsts())


def test_workers_that_answered_an_earlier_asker_are_not_counted() -> None:
    server = Server([1.0], [9000, 9001])
    assert workers_of(server) == {"9000", "9001"}
    server.workers = [9002, 9003]
    assert workers_of(server) == {"9002", "9003"}


def test_workers_that_do_not_answer_are_told() -> None:
    asker = asker_of(Server([1.0], [9000]), [1.0])
    asker.ask(1)
    with pytest.raises(RuntimeError, match="only 1 of 2 workers answered"):
        asker.until(2, seconds=0)


@pytest.mark.parametrize("said", [[1.1], [math.nan], [], [1.0, 1.0]])
def test_a_wrong_answer_is_told(said: list[float]) -> None:
    with pytest.raises(RuntimeError, match="a wrong answer: 200"):
        asker_of(Server(said, [9000]), [1.0]).ask(1)


def test_an_error_is_no_answer() -> None:
    with pytest.raises(RuntimeError, match="a wrong answer: 503"):
        asker_of(Server([1.0], [9000], status=503), [1.0]).ask(1)
