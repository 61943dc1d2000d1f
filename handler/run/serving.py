"""A pool and its host in this process, and an application that answers from it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

from interpool.handler.config import HostSettings
from interpool.handler.direct.application import Application, Limits
from interpool.handler.direct.channels import Channels
from interpool.handler.direct.models import Models, ServedModel
from interpool.handler.direct.queue import ModelQueue
from interpool.handler.direct.replies import Headers
from interpool.handler.direct.supervision import Workers
from interpool.handler.direct.traffic import DirectState
from interpool.handler.direct.worker import LoadFailed
from interpool.handler.errors import HostStartError, ServeError, WorkerRefused
from interpool.handler.frontend import shim
from interpool.handler.host.interpreter_pool import Pool
from interpool.handler.run.archives import Archive, Options, opened

# Batches in flight for each interpreter: while one is answered, the next one is there already.
WORKERS_PER_INTERPRETER = 4
_LEAVE_S = 15.0

logger = logging.getLogger("interpool.direct")


class HostThread:
    """The pool's host, in a thread of this process.

    Args:
        settings: of the host.
        direct: describes what answers HTTP.
    """

    def __init__(self, settings: HostSettings, direct: Callable[[], DirectState]) -> None:
        self._settings = settings
        self._direct = direct
        self.runtime_dir = ""
        self.error = ""

    def start(self) -> None:
        """Start it; raises HostStartError."""
        from interpool.handler.host.pool_host import PoolHost
        from interpool.handler.host.runtime_directory import remove_stale

        own = os.getpid()
        try:
            base = shim.runtime_base()
            self.runtime_dir = os.path.join(base, shim.instance_key(own, shim.DEFAULT_POOL))
            held = shim.lock(self.runtime_dir)
        except (shim.Refused, OSError) as error:
            raise HostStartError(str(error)) from None
        try:
            remove_stale(Path(base))
            self._pool = pool = Pool()
            pool.start()
            self._host = PoolHost(
                Path(self.runtime_dir),
                shim.DEFAULT_POOL,
                own,
                pool,
                settings=self._settings,
                lasting=True,
                direct=self._direct,
            )
        finally:
            os.close(held)
        self._thread = threading.Thread(target=self._host.run, name="pool host", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Have it leave, and wait for that."""
        self._host.leave("it is closed")
        self._thread.join(_LEAVE_S)
        if self._pool.manager is not None:
            self._pool.manager.close()  # a later pool of this process takes the interpreters


class Serving:
    """Models that are served without TorchServe.

    Args:
        archives: their files, by the names that clients ask for.
        options: for all of them.
        settings: of the pool's host; by default the environment's.

    Attributes:
        models: those that are served.
        settings: of the pool's host.
        address: where, for people; "" if only the program around this knows.
    """

    def __init__(
        self, archives: Mapping[str, Path], options: Options, settings: HostSettings | None = None
    ) -> None:
        self._archives = archives
        self._options = options
        self.settings = settings or HostSettings.of_environment()
        self.models = Models()
        self.address = ""

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Have the pool, and the models in it, for as long as this is open.

        Raises:
            ServeError: something cannot be served; the message says what, and why.
        """
        settings = self.settings
        async with contextlib.AsyncExitStack() as stack:
            archives = [
                stack.enter_context(opened(name, path, self._options))
                for name, path in self._archives.items()
            ]
            host = HostThread(settings, lambda: self.models.describe(self.address))
            host.start()
            stack.push_async_callback(asyncio.to_thread, host.close)
            channels = Channels()
            stack.callback(channels.close)
            stdio = (sys.stderr.fileno(), sys.stderr.fileno())
            await asyncio.gather(
                *(self._serve(each, host, settings, channels, stdio, stack) for each in archives)
            )
            yield

    async def _serve(
        self,
        archive: Archive,
        host: HostThread,
        settings: HostSettings,
        channels: Channels,
        stdio: tuple[int, int],
        stack: contextlib.AsyncExitStack,
    ) -> None:
        queue = ModelQueue(archive.settings)
        workers = Workers(host.runtime_dir, archive.files, queue, channels, stdio)
        stack.push_async_callback(workers.close)
        count = archive.workers or WORKERS_PER_INTERPRETER * settings.interpreters
        try:
            await workers.start(count)
        except (LoadFailed, WorkerRefused) as error:
            raise ServeError(f"{archive.name} cannot be served: {error}") from None
        self.models.add(ServedModel(archive.name, archive.version, queue, archive.examples))
        logger.info("%s, version %s, is served by %d workers", archive.name, archive.version, count)


def application(
    serving: Serving, limits: Limits | None = None, headers: Headers | None = None
) -> Application:
    """The application of these models, which opens them when it is started and closes them at its end."""
    return Application(
        serving.models,
        limits,
        headers=headers,
        lifespan=serving.open,
        has_access_lines=serving.settings.direct_access_log,
    )
