"""Keeps a model's workers: registers each, has it load the model, and starts it anew when it ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from interpool.handler.direct.channels import Channels
from interpool.handler.direct.host_link import WorkerGone, new_address, register
from interpool.handler.direct.queue import ModelQueue
from interpool.handler.direct.worker import LoadFailed, not_started, worker_died
from interpool.handler.errors import WorkerRefused

# Seconds before a worker that has ended is started anew: the next value each time that it did not become
# ready in between.
BACK_OFF_S = (0.0, 1.0, 1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0, 34.0, 55.0)

logger = logging.getLogger("interpool.direct")


@dataclass(frozen=True)
class ModelFiles:
    """The facts with which a worker is registered and loads its model.

    Attributes:
        name: the model's name, for people.
        model_dir: the directory into which its archive is extracted.
        load_command: TorchServe's load command.
        load_timeout_s: seconds that a load may take.
    """

    name: str
    model_dir: str
    load_command: bytes
    load_timeout_s: float = 120.0


class Place:
    """A place for one worker, and for the next one after that has ended.

    Args:
        runtime_dir: the host's runtime directory.
        files: the model's files.
        queue: the queue that the worker serves.
        channels: the channels of the event loop.
        stdio: descriptors for the model's output.
        beside: see ``host_link.register``.
        on_leave: called when no worker is to get a further batch, as that of TorchServe's has ended.

    Attributes:
        ready: done once the first worker has the model; if that fails, it has the error.
    """

    def __init__(
        self,
        runtime_dir: str,
        files: ModelFiles,
        queue: ModelQueue,
        channels: Channels,
        stdio: tuple[int, int],
        beside: dict[str, str] | None = None,
        on_leave: Callable[[], None] = lambda: None,
    ) -> None:
        self._runtime_dir = runtime_dir
        self._files = files
        self._queue = queue
        self._channels = channels
        self._stdio = stdio
        self._address = new_address()
        self._beside = beside
        self._on_leave = on_leave
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def keep(self) -> None:
        """Keep a worker there for ever, or as long as the worker of TorchServe's that it is beside lives.

        If it cannot be started anew and no other worker has the model, requests are refused until one has it.
        It returns early if the first worker fails; ``ready`` then has the error.
        """
        attempts = 0
        said = ""
        while True:
            try:
                await self._serve()
            except WorkerGone as error:
                self._fail(error)
                return
            except (WorkerRefused, LoadFailed) as error:
                if self._fail(error):
                    return
                self._queue.stall(not_started(self._files.name))
                if said != str(error):
                    said = str(error)
                    logger.error("a worker of %s did not start: %s", self._files.name, said)
            else:
                attempts, said = 0, ""
                if self._beside is None:
                    logger.info("a worker of %s has ended, and is started anew", self._files.name)
            await asyncio.sleep(BACK_OFF_S[min(attempts, len(BACK_OFF_S) - 1)])
            attempts += 1

    def _fail(self, error: Exception) -> bool:
        """Give ``ready`` an error; False if the first worker was ready, or has failed, before."""
        if self.ready.done():
            return False
        self.ready.set_exception(error)
        return True

    async def _serve(self) -> None:
        """Run a worker that serves the queue, until it ends; raises LoadFailed and what ``register`` does."""
        ended = asyncio.Event()
        said: list[WorkerRefused] = []
        files = self._files
        worker = self._queue.connection(self._channels, files.load_command, lambda _: ended.set())

        def host_ended(why: WorkerRefused) -> None:
            said.append(why)
            if isinstance(why, WorkerGone):
                self._on_leave()
            worker.leave()

        try:
            registered = await register(
                self._runtime_dir, files.model_dir, worker.number, self._stdio, self._address, self._beside
            )
            with contextlib.closing(registered):
                registered.watch(host_ended)
                await worker.loaded(files.load_timeout_s)
                self._queue.add(worker)
                if not self.ready.done():
                    self.ready.set_result(None)
                await ended.wait()
                if said and isinstance(said[0], WorkerGone):
                    raise said[0]
        except LoadFailed:
            if said:
                raise said[0] from None
            raise
        finally:
            worker.close()


class Workers:
    """The workers of one model.

    Args:
        runtime_dir: the host's runtime directory.
        files: the model's files.
        queue: the queue that they serve.
        channels: the channels of the event loop.
        stdio: descriptors for the model's output.
    """

    def __init__(
        self,
        runtime_dir: str,
        files: ModelFiles,
        queue: ModelQueue,
        channels: Channels,
        stdio: tuple[int, int],
    ) -> None:
        self._place = partial(Place, runtime_dir, files, queue, channels, stdio)
        self._queue = queue
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, count: int) -> None:
        """Start so many workers, and wait until all have the model.

        Raises:
            WorkerRefused: the host does not take one.
            LoadFailed: the model cannot be loaded.
        """
        self._queue.wanted = count
        places = [self._place() for _ in range(count)]
        self._tasks = [asyncio.create_task(place.keep()) for place in places]
        await asyncio.gather(*(place.ready for place in places))

    async def close(self) -> None:
        """End the workers. Requests that have no answer yet fail; drain the queue first to avoid that."""
        self._queue.wanted = 0
        self._queue.refuse_waiting(worker_died())
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
