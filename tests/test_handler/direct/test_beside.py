"""The workers beside TorchServe's, as far as they need no pool; the rest is tested in tests/system."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from fake_channels import FakeChannels, FakeHost, until

from interpool.handler.direct import beside
from interpool.handler.direct.beside import _Beside
from interpool.handler.direct.channels import Channels
from interpool.handler.direct.followed import DefaultVersion, FollowedWorker, Management
from interpool.handler.direct.job import Job, Refusal
from interpool.handler.direct.models import Models
from interpool.handler.direct.supervision import ModelFiles

_REGISTERED = {
    "modelVersion": "1.0",
    "minWorkers": 1,
    "workers": [{"status": "READY"}],
    "batchSize": 1,
    "maxBatchDelay": 100,
    "responseTimeout": 120,
    "clientTimeoutInMills": 0,
}


@asynccontextmanager
async def _management(registered: dict[str, Any] = _REGISTERED, pages: int = 1) -> AsyncIterator[Management]:
    """TorchServe's management interface, which has models of one kind: page0, page1, ..."""

    async def say(_request: web.Request) -> web.Response:
        return web.json_response([registered])

    async def list_names(request: web.Request) -> web.Response:
        page = int(request.query["next_page_token"])
        answer: dict[str, Any] = {"models": [{"modelName": f"page{page}"}]}
        if page + 1 < pages:
            answer["nextPageToken"] = str(page + 1)
        return web.json_response(answer)

    application = web.Application()
    application.router.add_get("/models", list_names)
    application.router.add_get("/models/{rest:.*}", say)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0]
    async with aiohttp.ClientSession() as session:
        yield Management(f"http://{host}:{port}", lambda: session, str)
    await runner.cleanup()


@pytest.mark.parametrize("unix", [0, 1])
def test_an_address_beside_a_torchserve_that_has_no_port_is_refused(
    unix: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    addresses = ["http://127.0.0.1:8080", "http://127.0.0.1:8081"]
    addresses[unix] = "unix:/run/torchserve"
    monkeypatch.setattr(beside, "addresses_of", lambda _frontend: addresses)
    direct = beside.DirectAddress(f"unix:{tmp_path}/direct", tmp_path, os.getpid())
    direct.start()
    direct.close(patience_s=60)
    assert "TorchServe listens at unix:/run/torchserve: give inference_address and" in caplog.text


def test_an_address_that_another_process_has_is_not_said_to_be_served(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        direct = beside.DirectAddress(f"127.0.0.1:{other.getsockname()[1]}", tmp_path, os.getpid())
        direct.start()
        direct.close(patience_s=60)
    assert direct.describe() is None
    assert direct.trouble.endswith("is not served: [Errno 98] Address already in use")


_pids = itertools.count(1)


def _worker(name: str, directory: str = "", pid: str | None = None) -> FollowedWorker:
    files = ModelFiles(name, directory or f"/{name}", b"", 1.0)
    beside = {"beside": str(next(_pids)) if pid is None else pid}
    return FollowedWorker(name, "1.0", files, (os.dup(2), os.dup(2)), beside)


@asynccontextmanager
async def _beside(
    directory: str = "", *, loaded: bool = True
) -> AsyncIterator[tuple[_Beside, FakeChannels, Models]]:
    """Model m with a worker in that directory, which has loaded it or is loading it."""
    channels, models = FakeChannels(), Models()
    async with _management() as management:
        beside = _Beside("/nowhere", models, management, channels)
        beside._add(_worker("m", directory))
        await until(lambda: channels.opened)
        if loaded:
            channels.opened[0].load()
            await until(lambda: all(model.queue.workers for model in models))
        yield beside, channels, models


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
    registered_again: bool, host: FakeHost
) -> None:
    async def work() -> None:
        async with _beside("/old") as (beside, channels, models):
            busy, waiting = (Job(name, {}, [], 0.0) for name in (b"busy", b"waiting"))
            queue = models.find("m", None).queue
            assert queue.put(busy)
            assert queue.put(waiting)
            if registered_again:
                beside._add(_worker("m", "/new"))
                await until(lambda: models.find("m", None).directory == "/new")
            host.end("/old")
            with pytest.raises(Refusal, match="Model not found: m") as refused:
                await asyncio.wait_for(waiting.answer(), 10)
            assert refused.value.status == 404
            assert [model.directory for model in models] == (["/new"] if registered_again else [])
            channels.opened[0].answer()
            assert (await busy.answer()).body == b"busy"
            await beside.close()

    asyncio.run(work())


def test_a_worker_that_the_host_reports_again_gets_no_second_one_beside_it(host: FakeHost) -> None:
    async def work() -> None:
        channels = FakeChannels()
        async with _management() as management:
            beside = _Beside("/nowhere", Models(), management, channels)
            for _ in range(2):
                beside._add(_worker("m", pid="7"))
            await until(lambda: channels.opened)
            channels.opened[0].load()
            host.end("/m")
            await until(lambda: not beside._tasks)
            assert len(channels.opened) == 1
            beside._add(_worker("m", pid="7"))  # another process may get the number of one that has ended
            await until(lambda: len(channels.opened) == 2)
            await beside.close()

    asyncio.run(work())


def test_a_worker_whose_call_the_host_gives_up_is_started_again(host: FakeHost) -> None:
    async def work() -> None:
        async with _beside() as (beside, channels, models):
            lost, waiting = (Job(name, {}, [], 0.0) for name in (b"lost", b"waiting"))
            queue = models.find("m", None).queue
            assert queue.put(lost)
            assert queue.put(waiting)
            host.end("/m", b"bye")
            await until(lambda: all(worker.leaving for worker in queue.workers))
            channels.opened[0].end()
            with pytest.raises(Refusal, match="Worker died"):
                await lost.answer()
            await until(lambda: len(channels.opened) == 2)
            channels.opened[1].load()
            await until(lambda: channels.opened[1].batches)
            channels.opened[1].answer()
            assert (await waiting.answer()).body == b"waiting"
            host.end("/m")
            await until(lambda: not beside._tasks)
            assert not list(models)

    asyncio.run(work())


def test_a_worker_whose_first_load_fails_is_tried_again_and_requests_are_passed_on_meanwhile(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interpool.handler.direct.supervision.BACK_OFF_S", (0.0, 0.01, 0.01, 0.01))

    async def work() -> None:
        async with _beside(loaded=False) as (beside, channels, models):
            queue = models.find("m", None).queue
            waiting, served = Job(b"waiting", {}, [], 0.0), Job(b"served", {}, [], 0.0)
            assert queue.put(waiting)
            for number in range(3):
                await until(lambda number=number: len(channels.opened) == number + 1)
                channels.opened[number].end()
                await until(lambda: not queue.wanted)
            with pytest.raises(Refusal, match="Worker died") as refused:
                await asyncio.wait_for(waiting.answer(), 10)
            assert refused.value.status == 500
            await until(lambda: len(channels.opened) == 4)
            assert not queue.wanted
            channels.opened[3].load()
            await until(lambda: queue.wanted)
            assert queue.put(served)
            channels.opened[3].answer()
            assert (await served.answer()).body == b"served"
            host.end("/m")
            await until(lambda: not beside._tasks)
            assert not list(models)

    asyncio.run(work())


def test_a_loading_worker_is_not_started_again_if_torchserves_ends(host: FakeHost) -> None:
    async def work() -> None:
        async with _beside() as (beside, channels, models):
            channels.opened[0].end()
            await until(lambda: len(channels.opened) == 2)
            await asyncio.sleep(0.05)
            host.end("/m")
            await until(lambda: not beside._tasks)
            assert len(channels.opened) == 2
            assert not list(models)

    asyncio.run(work())


@pytest.mark.usefixtures("host")
def test_the_address_is_ready_once_torchserves_workers_and_those_beside_them_have_the_default_versions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("interpool.handler.direct.beside._REFRESH_S", 0.01)

    async def work() -> None:
        channels, models = FakeChannels(), Models(is_complete=False)
        registered = {**_REGISTERED, "workers": [{"status": "UNLOADING"}]}
        async with _management(registered, pages=2) as management:
            asked: list[str] = []

            async def default_version(name: str) -> DefaultVersion | None:
                asked.append(name)
                return await Management.default_version(management, name)

            monkeypatch.setattr(management, "default_version", default_version)
            beside = _Beside("/nowhere", models, management, channels)
            refreshing = asyncio.create_task(beside.refresh())
            await until(lambda: asked.count("page1") == 3)
            assert not models.is_ready
            registered["workers"] = [{"status": "READY"}]
            await until(lambda: models.is_ready)  # TorchServe's own workers serve both models
            beside._add(_worker("page1"))
            await until(lambda: channels.opened)
            assert not models.is_ready
            channels.opened[0].load()
            await until(lambda: models.is_ready)
            refreshing.cancel()
            await beside.close()

    asyncio.run(work())


def test_a_model_waits_until_torchserve_says_how_its_version_is_registered() -> None:
    async def work() -> None:
        registered = {**_REGISTERED, "modelVersion": "0.9", "batchSize": 8}
        async with _management(registered) as management:
            beside = _Beside("/nowhere", Models(), management, Channels())
            with closing(_worker("m")) as worker:
                found = asyncio.create_task(beside._model(worker))
                await asyncio.sleep(0.3)
                assert not found.done()
                registered["modelVersion"] = "1.0"
                model = await found
            assert model is not None
            assert model.queue.settings.batch_size == 8

    asyncio.run(work())


def test_the_address_is_not_ready_while_torchserve_does_not_say_which_models_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("interpool.handler.direct.beside._REFRESH_S", 0.01)

    async def work() -> None:
        models = Models(is_complete=False)
        async with aiohttp.ClientSession() as session:
            management = Management("http://127.0.0.1:1", lambda: session, str)
            refreshing = asyncio.create_task(_Beside("/", models, management, FakeChannels()).refresh())
            await asyncio.sleep(0.2)
            assert not models.is_ready
            refreshing.cancel()

    asyncio.run(work())
