"""The workers beside TorchServe's, as far as they need no pool; the rest is tested in tests/system."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing

import aiohttp
import pytest
from aiohttp import web
from fake_channels import FakeChannels, FakeHost, until

from interpool.handler.direct.beside import _Beside
from interpool.handler.direct.channels import Channels
from interpool.handler.direct.followed import FollowedWorker, Management
from interpool.handler.direct.job import Job, Refusal
from interpool.handler.direct.models import Models
from interpool.handler.direct.supervision import ModelFiles

_REGISTERED = {
    "modelVersion": "1.0",
    "batchSize": 1,
    "maxBatchDelay": 100,
    "responseTimeout": 120,
    "clientTimeoutInMills": 0,
}


async def _say(_request: web.Request) -> web.Response:
    return web.json_response([_REGISTERED])


@asynccontextmanager
async def _management() -> AsyncIterator[Management]:
    application = web.Application()
    application.router.add_get("/models/{rest:.*}", _say)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0]
    async with aiohttp.ClientSession() as session:
        yield Management(f"http://{host}:{port}", lambda: session, str)
    await runner.cleanup()


def _worker(name: str, directory: str = "") -> FollowedWorker:
    files = ModelFiles(name, directory or f"/{name}", b"", 1.0)
    return FollowedWorker(name, "1.0", 1, files, (os.dup(2), os.dup(2)), {})


def test_models_that_come_and_go_leave_nothing_and_two_workers_of_one_share_it() -> None:
    async def work() -> None:
        async with _management() as management:
            beside = _Beside("/nowhere", Models(), management, Channels())
            for name in ("a", "b", "c"):
                with closing(_worker(name)) as worker:
                    first, second = await asyncio.gather(*(beside._model(worker) for _ in range(2)))
                assert first is not None
                assert first is second
            assert not beside._locks

    asyncio.run(work())


@pytest.mark.parametrize("registered_again", [False, True])
def test_requests_that_wait_for_a_model_that_is_unregistered_are_refused(
    registered_again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        channels, models = FakeChannels(), Models()
        async with _management() as management:
            beside = _Beside("/nowhere", models, management, channels)
            beside._add(_worker("m", "/old"))
            await until(lambda: channels.opened)
            channels.opened[0].load()
            await until(lambda: all(model.queue.workers for model in models))
            busy, waiting = (Job(name, {}, [], 0.0) for name in (b"busy", b"waiting"))
            queue = models.find("m", None).queue
            assert queue.put(busy)
            assert queue.put(waiting)
            if registered_again:
                beside._add(_worker("m", "/new"))
                await until(lambda: models.find("m", None).directory == "/new")
            host.end("/old")
            await asyncio.sleep(0.05)
            channels.opened[0].answer()
            assert (await busy.answer()).body == b"busy"
            with pytest.raises(Refusal, match="Model not found: m") as refused:
                await asyncio.wait_for(waiting.answer(), 10)
            assert refused.value.status == 404
            assert [model.directory for model in models] == (["/new"] if registered_again else [])
            await beside.close()

    with FakeHost() as host:
        monkeypatch.setattr("interpool.handler.direct.supervision.register", host.register)
        asyncio.run(work())
