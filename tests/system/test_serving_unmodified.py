"""The same archives on a TorchServe without the overlay: each worker has a pool of its own."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from local_server import TorchServe
from system.conftest import Mar, wait_for_log

pytestmark = pytest.mark.long  # a pool for each stock worker: slow to start


@pytest.fixture(scope="module")
def plain() -> Iterator[TorchServe]:
    with TorchServe(overlay=False) as server:
        yield server


def test_a_batch_is_spread_over_the_workers_own_interpreters(plain: TorchServe, mar: Mar) -> None:
    archive = mar(plain, "linear", "linear")
    answer = plain.register(archive, batch_size=4, max_batch_delay=1000)
    assert answer.status == 200, plain.model_log()[-3000:]
    assert plain.hosts() == []
    bodies: list[object] = [[1.0, 1, 1], [[1.0], [1, 2]], [0.0, 0, 1], [1.0, 0, 0]]
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda body: plain.predict("linear", body), bodies))
    assert [answer.status for answer in answers] == [200, 400, 200, 200]
    assert answers[0].json == [3.0, 12.0]
    assert "not a rectangular array" in answers[1].json["message"]
    assert answers[2].json == [2.0, 5.0]
    assert answers[0].headers["content-type"] == "application/json"
    assert plain.unregister("linear").status == 200


def test_a_model_runs_in_the_stock_worker_and_its_errors_are_clear(plain: TorchServe, mar: Mar) -> None:
    assert plain.register(mar(plain, "inside", "inside")).status == 200
    (worker,) = plain.describe("inside")[0]["workers"]
    answer = plain.predict("inside", {"say": "from within"})
    assert answer.json["pid"] == worker["pid"]
    wait_for_log(plain, "from within")
    answer = plain.predict("inside", {"raise": "not today"})
    assert answer.status == 503
    assert "Model 'inside' raised ValueError: not today" in answer.json["message"]
    assert plain.predict("inside", {"memory": 1}).status == 507
    assert plain.predict("inside", {}).status == 200
    assert plain.unregister("inside").status == 200


def test_a_package_that_cannot_be_loaded_says_why_in_the_log(plain: TorchServe, mar: Mar) -> None:
    assert plain.register(mar(plain, "raises", "raises")).status == 500
    wait_for_log(plain, "FileNotFoundError: no vocabulary here")
