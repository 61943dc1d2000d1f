"""What a server remembers in its snapshots comes back with the pool as it does with stock workers."""

from __future__ import annotations

import pytest
from local_server import TorchServe
from system.comparison import front
from system.comparison.front import Way
from system.comparison.scenes import Story
from system.comparison.servers import pair
from waiting import wait_for

pytestmark = pytest.mark.long  # two servers of its own, started twice

MODELS = {"ordinary": Way.ORDINARY, "hermetic": Way.HERMETIC}


class _Remembering(TorchServe):
    """Writes snapshots, and starts with the last one: TorchServe does where no configuration is named."""

    def _flags(self) -> list[str]:
        left_out = {"--ncs"}
        if any(self.logs.glob("config/*.cfg")):
            left_out |= {"--ts-config", "config.properties"}
        return [flag for flag in super()._flags() if flag not in left_out]


def _prepare(server: TorchServe) -> None:
    for name, way in MODELS.items():
        front.make(
            way if server.overlay else Way.ORDINARY,
            name,
            server.store,
            config="minWorkers: 1\nmaxWorkers: 3\nbatchSize: 2\n",
        )


def _state(server: TorchServe) -> Story:
    """The models as they are described, once their workers are ready, and their answers."""
    story: Story = []
    for name in MODELS:
        described = server.describe(name)[0]
        answer = server.predict(name, {"a": 1})
        kept = {key: described[key] for key in ("minWorkers", "maxWorkers", "batchSize", "loadedAtStartup")}
        statuses = [worker["status"] for worker in described["workers"]]
        story.append((name, kept, statuses, answer.status, answer.text))
    return [*story, sorted(server.models())]


def _life(server: TorchServe) -> Story:
    def is_ready(workers: int) -> bool:
        described = [server.describe(name)[0]["workers"] for name in MODELS]
        return all([worker["status"] for worker in one] == ["READY"] * workers for one in described)

    wait_for(lambda: is_ready(1), "all models of the store")
    story = _state(server)
    for name in MODELS:
        assert server.scale(name, 2, timeout=300).status == 200
    server.stop()
    server.start()
    wait_for(lambda: is_ready(2), "the models of the snapshot")
    return [*story, *_state(server), len(server.hosts()) <= 1]


def test_models_of_the_store_and_of_the_last_snapshot_are_served() -> None:
    with pair(properties={"load_models": "all"}, prepare=_prepare, kind=_Remembering) as servers:
        stock, pool = servers.both(_life)
    assert pool == stock
