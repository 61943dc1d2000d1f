"""Replicas of Ray Serve, if Ray is installed: a real cluster of one node, whose models change under load."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clients import Load
from local_server import free_ports
from ray_serving import deploy, over_http
from stock_archiver import wrap
from waiting import wait_for

ray = pytest.importorskip("ray")
pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore")]  # warnings of Ray's own
HANDLER = """
import torch

class Handler:
    def initialize(self, context):
        self.model = lambda x: x * {factor} + 1

    def handle(self, data, context):
        return [self.model(torch.tensor(row["body"])).tolist() for row in data]
"""


def make(folder: Path, name: str, factor: int) -> Path:
    handler = folder / f"{name}.py"
    handler.write_text(HANDLER.format(factor=factor))
    return folder / wrap(name, handler, folder)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ray")
    make(folder, "double", 2)
    make(folder, "triple", 3)
    (folder / "wrong.mar").write_text("this is no archive")
    return folder


@pytest.fixture(scope="module")
def port(store: Path) -> Iterator[int]:
    from ray import serve

    (free,) = free_ports(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setenv("RAY_raylet_start_wait_time_s", "300")
        patch.setenv("INTERPOOL_ORDINARY_ARCHIVES", "pool")
        patch.setenv("INTERPOOL_RUNTIME_DIR", str(store / "run"))
        ray.init(num_cpus=2, object_store_memory=80 << 20, include_dashboard=False, log_to_driver=False)
        try:
            serve.start(http_options={"port": free})
            yield free
        finally:
            serve.shutdown()
            ray.shutdown()


def ask(handle: Any, model: str, value: list[int]) -> Any:
    return json.loads(handle.predict.remote(model, value).result(timeout_s=60))


def served(handle: Any) -> set[str]:
    return set(handle.models.remote().result(timeout_s=60)["served"])


def test_models_are_replaced_added_and_removed_under_load_without_a_failed_request(
    port: int, store: Path
) -> None:
    handle = deploy({"price": str(store / "double.mar")})
    pids = {each["pid"] for each in _replicas()}
    assert ask(handle, "price", [1, 2]) == [3, 5]
    with Load(lambda: json.loads(over_http(port, "price", b"[1, 2]"))) as load:
        wait_for(lambda: load.answers, "the first archive's answer")
        assert load.answers.keys() == {"[3, 5]"}
        deploy({"price": str(store / "triple.mar"), "more": str(store / "double.mar")})
        wait_for(lambda: served(handle) == {"price", "more"}, "both models")
        assert ask(handle, "more", [1]) == [3]
        wait_for(lambda: load.answers["[4, 7]"], "the new archive's answer")
        deploy({"price": str(store / "triple.mar")})
        wait_for(lambda: served(handle) == {"price"}, "the end of a model")
        by_then = load.answers["[3, 5]"]
    assert load.failures == []
    assert load.answers.keys() == {"[3, 5]", "[4, 7]"}
    assert load.answers["[3, 5]"] == by_then
    with pytest.raises(ray.exceptions.RayTaskError, match="answered 404"):
        handle.predict.remote("more", [1]).result(timeout_s=60)
    assert {each["pid"] for each in _replicas()} == pids


def test_a_wrong_archive_leaves_the_models_that_are_served_as_they_are(port: int, store: Path) -> None:
    handle = deploy({"price": str(store / "double.mar")})
    wait_for(lambda: ask(handle, "price", [1]) == [3], "the first archive")
    wrong = str(store / "wrong.mar")
    deploy({"price": wrong, "other": wrong, "new": str(store / "triple.mar"), "odd": {"uri": "x"}})
    wait_for(lambda: served(handle) == {"price", "new"}, "the right one of the new models")
    assert (ask(handle, "price", [1]), ask(handle, "new", [1])) == ([3], [4])
    described = handle.models.remote().result(timeout_s=60)
    assert set(described["served"]) == {"price", "new"}
    assert set(described["refused"]) == {"price", "other", "odd"}
    assert "the one before goes on: " in described["refused"]["price"]
    assert "is not an archive of TorchServe's" in described["refused"]["other"]


def _replicas() -> list[dict[str, Any]]:
    """The replicas' processes: their pools' hosts are in them."""
    from interpool.handler.host.status import ask_hosts_below

    pools, silent = ask_hosts_below(Path(os.environ["INTERPOOL_RUNTIME_DIR"]))
    assert silent == []
    assert pools
    return [dict(pool) for pool in pools]
