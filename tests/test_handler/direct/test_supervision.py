"""How a model's workers are kept, with channels and a host that the test answers for."""

from __future__ import annotations

import asyncio

import pytest
from fake_channels import FakeChannels, FakeHost, until

from interpool.handler.direct.queue import ModelQueue, QueueSettings
from interpool.handler.direct.supervision import ModelFiles, Workers
from interpool.handler.direct.worker import LoadFailed


def test_a_worker_that_ends_right_after_its_load_is_not_one_that_has_the_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work() -> None:
        channels, queue = FakeChannels(), ModelQueue(QueueSettings())
        workers = Workers("/nowhere", ModelFiles("m", "/m", b""), queue, channels, (2, 2))
        starting = asyncio.create_task(workers.start(1))
        await until(lambda: channels.opened)
        channels.opened[0].load()
        channels.opened[0].end()
        with pytest.raises(LoadFailed, match="its worker ended"):
            await starting
        assert not queue.workers
        await workers.close()

    with FakeHost() as host:
        monkeypatch.setattr("interpool.handler.direct.supervision.register", host.register)
        asyncio.run(work())
