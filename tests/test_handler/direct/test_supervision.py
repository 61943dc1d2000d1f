"""How a model's workers are kept, with channels and a host that the test answers for."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from fake_channels import FakeChannels, FakeHost, until

from interpool.handler.direct.host_link import Registered
from interpool.handler.direct.job import Answer, Job, Refusal
from interpool.handler.direct.queue import ModelQueue, QueueSettings
from interpool.handler.direct.supervision import ModelFiles, Workers
from interpool.handler.direct.worker import LoadFailed
from interpool.handler.errors import WorkerRefused


@pytest.mark.usefixtures("host")
def test_a_worker_that_ends_right_after_its_load_is_not_one_that_has_the_model() -> None:
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

    asyncio.run(work())


def test_a_worker_in_anothers_place_has_its_address_and_a_further_one_another(
    monkeypatch: pytest.MonkeyPatch, host: FakeHost
) -> None:
    addresses: list[str] = []

    async def register(*worker: Any) -> Registered:
        addresses.append(worker[4])
        return await host.register(*worker)

    async def work() -> None:
        channels = FakeChannels()
        files = [ModelFiles(name, f"/{name}", b"") for name in "mn"]
        models = [Workers("/nowhere", each, ModelQueue(QueueSettings()), channels, (2, 2)) for each in files]
        for number, workers in enumerate(models):
            starting = asyncio.create_task(workers.start(1))
            await until(lambda number=number: len(channels.opened) > number)
            channels.opened[number].load()
            await starting
        channels.opened[0].end()
        await until(lambda: len(addresses) == 3)
        for workers in models:
            await workers.close()

    monkeypatch.setattr("interpool.handler.direct.supervision.register", register)
    asyncio.run(work())
    assert addresses[2] == addresses[0] != addresses[1]


@pytest.mark.usefixtures("host")
def test_a_load_that_takes_too_long_names_the_setting_that_allows_it() -> None:
    async def work() -> None:
        files = ModelFiles("m", "/m", b"", load_timeout_s=0.01)
        workers = Workers("/nowhere", files, ModelQueue(QueueSettings()), FakeChannels(), (2, 2))
        with pytest.raises(LoadFailed, match=r"not loaded in 0\.01 s.*`startupTimeout: SECONDS`"):
            await workers.start(1)
        await workers.close()

    asyncio.run(work())


def test_a_worker_that_the_host_refuses_gives_that_error_and_the_loop_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[str] = []

    async def refuse(*_worker: object) -> None:
        raise WorkerRefused("there is no room")

    async def work() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, what: said.append(what["message"]))
        channels, queue = FakeChannels(), ModelQueue(QueueSettings())
        workers = Workers("/nowhere", ModelFiles("m", "/m", b""), queue, channels, (2, 2))
        with pytest.raises(WorkerRefused, match="there is no room"):
            await workers.start(2)
        await workers.close()
        channels.opened.clear()
        await asyncio.sleep(0)  # the channels' ends
        gc.collect()

    monkeypatch.setattr("interpool.handler.direct.supervision.register", refuse)
    asyncio.run(work())
    assert said == []


def test_requests_of_a_model_that_is_not_started_anew_are_refused_until_it_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, host: FakeHost
) -> None:
    refused = 0

    async def refuse(*_worker: object) -> None:
        nonlocal refused
        refused += 1
        raise WorkerRefused("it needs a process of its own")

    async def work() -> None:
        loop, channels, queue = (
            asyncio.get_running_loop(),
            FakeChannels(),
            ModelQueue(QueueSettings(batch_delay_s=0)),
        )
        workers = Workers("/nowhere", ModelFiles("m", "/m", b""), queue, channels, (2, 2))
        starting = asyncio.create_task(workers.start(1))
        await until(lambda: channels.opened)
        channels.opened[0].load()
        await starting
        answers: list[Answer | Refusal] = []
        waiting, later = (Job(name, {}, [], loop.time()) for name in (b"waiting", b"later"))
        waiting.call_back(answers.append)
        later.call_back(answers.append)

        monkeypatch.setattr("interpool.handler.direct.supervision.register", refuse)
        channels.opened[0].end()
        assert queue.put(waiting)
        await until(lambda: refused == 2)
        (said,) = answers
        assert isinstance(said, Refusal)
        assert (said.status, said.message) == (
            503,
            'Model "m" has no worker: none could be started anew, and the server\'s log says why',
        )
        assert not queue.put(later)
        assert queue.is_stalled

        monkeypatch.setattr("interpool.handler.direct.supervision.register", host.register)
        loaded = len(channels.opened)
        await until(lambda: len(channels.opened) > loaded)
        channels.opened[-1].load()
        await until(lambda: queue.workers)
        assert queue.put(later)
        await until(lambda: channels.opened[-1].batches)
        channels.opened[-1].answer()
        await until(lambda: len(answers) == 2)
        assert isinstance(answers[1], Answer)
        await workers.close()

    asyncio.run(work())
    assert [line.getMessage() for line in caplog.records if line.levelname == "ERROR"] == [
        "a worker of m did not start: it needs a process of its own"
    ]
