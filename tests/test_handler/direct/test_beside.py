"""The workers beside TorchServe's, as far as they need no pool; the rest is tested in tests/system."""

from __future__ import annotations

import asyncio

import aiohttp
from aiohttp import web

from interpool.handler.direct.beside import _Beside
from interpool.handler.direct.channels import Channels
from interpool.handler.direct.followed import FollowedWorker, Management
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


def _worker(name: str) -> FollowedWorker:
    return FollowedWorker(name, "1.0", 1, ModelFiles(name, f"/{name}", b"", 1.0), (-1, -1), {})


def test_models_that_come_and_go_leave_nothing_and_two_workers_of_one_share_it() -> None:
    async def work() -> None:
        application = web.Application()
        application.router.add_get("/models/{rest:.*}", _say)
        runner = web.AppRunner(application)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0]
        async with aiohttp.ClientSession() as session:
            management = Management(f"http://{host}:{port}", lambda: session, str)
            beside = _Beside("/nowhere", Models(), management, Channels())
            for name in ("a", "b", "c"):
                first, second = await asyncio.gather(*(beside._model(_worker(name)) for _ in range(2)))
                assert first is not None
                assert first is second
            assert not beside._locks
        await runner.cleanup()

    asyncio.run(work())
