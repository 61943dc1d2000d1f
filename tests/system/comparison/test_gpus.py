"""A server gives its workers GPUs that its machine does not have; they go on without."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from local_server import TorchServe
from system.comparison.archive import Archive
from system.comparison.building import build
from system.comparison.servers import pair

pytestmark = [
    pytest.mark.long,  # two servers of its own
    pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device"),
]

PLACED = Archive("placed", handler="handler.py", model_file="net.py", requests=[], statuses=[])
INSISTS = replace(PLACED, name="insists", folder="placed")


@pytest.mark.parametrize(
    ("visible", "number", "expected"),
    [("4,5", "", [0, 1]), ("4,5", "1", [0]), ("", "2", [None])],
    ids=["two GPUs", "one of two", "none"],
)
def test_workers_are_given_the_servers_gpus_in_turn(
    tmp_path: Path, visible: str, number: str, expected: list[int | None]
) -> None:
    placed, insists = build(PLACED, tmp_path), build(INSISTS, tmp_path)

    def story(server: TorchServe) -> object:
        assert server.register(f"file://{placed}", initial_workers=2, timeout=300).status == 200
        seen = {server.predict("placed", 1).text for _ in range(20)}
        refused = server.register(f"file://{insists}", initial_workers=1, timeout=300)
        seen |= {server.predict("placed", 1).text for _ in range(5)}
        workers = [(each["status"], each["gpu"]) for each in server.describe("placed")[0]["workers"]]
        return sorted(map(json.loads, seen), key=str), refused.status, refused.text, workers

    # TorchServe counts the GPUs that it is to see, and asks nvidia-smi if that is not said.
    properties = {"number_of_gpu": number} if number else {}
    with pair({"CUDA_VISIBLE_DEVICES": visible}, properties) as servers:
        stock, pool = servers.both(story)
        assert pool == stock
        places, status, _, workers = pool  # type: ignore[misc]
        assert places == [[gpu, "cpu", "cpu", visible] for gpu in expected]
        assert status == 500
        assert workers == [("READY", expected != [None])] * 2
        assert servers.pool.hosts()
