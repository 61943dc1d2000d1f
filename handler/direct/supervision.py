"""Keeps a model's workers: each is registered, loads the model, and is started anew when it ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass

from interpool.handler.direct.host_link import Registered, register
from interpool.handler.direct.queue import ModelQueue
from interpool.handler.direct.worker import LoadFailed, WorkerConnection
from interpool.handler.errors import WorkerRefused

# Seconds before a worker that ended is started anew, each time that it has not become ready meanwhile.
BACK_OFF_S = (0.0, 1.0, 1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0, 34.0, 55.0)

logger = logging.getLogger("interpool.direct")


@dataclass(frozen=True)
class ModelFiles:
    """What a worker is registered and loads its model with.

    Attributes:
        name: of the model, for people.
        model_dir: where its archive is extracted.
        load_command: TorchServe's.
        load_timeout_s: seconds that a load may take.
    """

    name: str
    model_dir: str
    load_command: bytes
    load_timeout_s: float = 120.0


async def connect(
    runtime_dir: str, files: ModelFiles, queue: ModelQueue, stdio: tuple[int, int]
) -> tuple[WorkerConnection, Registered, asyncio.Event]:
    """A worker that has loaded its model and serves the queue, and what its end sets.

    Raises:
        WorkerRefused: the host does not take it.
        LoadFailed: the model cannot be loaded.
    """
    loop = asyncio.get_running_loop()
    registered = await register(runtime_dir, files.model_dir, stdio)
    ended = asyncio.Event()
    said: list[str] = []
    try:
        _, worker = await loop.create_unix_connection(
            lambda: queue.connection(lambda _: ended.set()), sock=registered.stream
        )
    except BaseException:
        registered.close()
        registered.stream.close()
        raise

    def host_ended(why: str) -> None:
        said.append(why)
        worker.leave()

    registered.watch(host_ended)
    try:
        await worker.load(files.load_command, files.load_timeout_s)
    except BaseException as error:
        worker.close()
        registered.close()
        if isinstance(error, LoadFailed) and said:
            raise WorkerRefused(said[0]) from None
        raise
    queue.add(worker)
    return worker, registered, ended


class Workers:
    """The workers of one model.

    Args:
        runtime_dir: of the host.
        files: the model's.
        queue: which they serve.
        stdio: descriptors for what the model prints.
    """

    def __init__(
        self, runtime_dir: str, files: ModelFiles, queue: ModelQueue, stdio: tuple[int, int]
    ) -> None:
        self._runtime_dir = runtime_dir
        self._files = files
        self._queue = queue
        self._stdio = stdio
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, count: int) -> None:
        """Start so many; returns when all have the model, and raises what the first that fails does.

        Raises:
            WorkerRefused: the host does not take one.
            LoadFailed: the model cannot be loaded.
        """
        self._queue.wanted = count
        ready = [asyncio.get_running_loop().create_future() for _ in range(count)]
        self._tasks = {asyncio.create_task(self._keep(each)) for each in ready}
        await asyncio.gather(*ready)

    async def close(self) -> None:
        """End them; batches that are under way are answered first."""
        self._queue.wanted = 0
        for worker in list(self._queue.workers):
            worker.leave()
        self._queue.fail_waiting()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _keep(self, ready: asyncio.Future[None]) -> None:
        attempts = 0
        while True:
            try:
                worker, registered, ended = await connect(
                    self._runtime_dir, self._files, self._queue, self._stdio
                )
            except (WorkerRefused, LoadFailed) as error:
                if not ready.done():
                    ready.set_exception(error)
                    return
                logger.error("a worker of %s did not start: %s", self._files.name, error)
            else:
                attempts = 0
                if not ready.done():
                    ready.set_result(None)
                try:
                    await ended.wait()
                finally:
                    with contextlib.suppress(OSError):
                        registered.close()
                    worker.close()
                logger.warning("a worker of %s has ended, and is started anew", self._files.name)
            await asyncio.sleep(BACK_OFF_S[min(attempts, len(BACK_OFF_S) - 1)])
            attempts += 1
