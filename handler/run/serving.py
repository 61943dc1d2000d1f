"""Runs a pool and its host in this process, and an application that answers from the pool."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from interpool.handler.config import HostSettings
from interpool.handler.direct.application import Application, Limits
from interpool.handler.direct.channels import Channels
from interpool.handler.direct.models import Models, ModelVersion
from interpool.handler.direct.queue import ModelQueue
from interpool.handler.direct.replies import Headers
from interpool.handler.direct.supervision import Workers
from interpool.handler.direct.traffic import DirectState, Traffic
from interpool.handler.direct.worker import LoadFailed
from interpool.handler.errors import HostStartError, ServeError, SettingsError, WorkerRefused
from interpool.handler.frontend import shim
from interpool.handler.host import control
from interpool.handler.host.interpreter_pool import Pool
from interpool.handler.host.readiness import ANY, readiness
from interpool.handler.run.archives import Archive, opened
from interpool.handler.run.options import Options

# Batches in flight for each interpreter: while one is answered, the next one has already arrived.
WORKERS_PER_INTERPRETER = 4
_LEAVE_S = 15.0
_only = threading.Lock()  # held by the host of this process, as its runtime directory is the process's

logger = logging.getLogger("interpool.direct")


class HostThread:
    """The pool's host, in a thread of this process.

    Args:
        settings: the host's settings.
        direct: returns the state of the application that answers HTTP. Any thread.
        on_end: called with the reason if the host ends by itself. The host's thread.

    Attributes:
        runtime_dir: the host's runtime directory; "" before the start.
        closes_pool: whether ``close`` closes the pool, which waits for an interpreter that is starting.
    """

    def __init__(
        self,
        settings: HostSettings,
        direct: Callable[[], DirectState],
        on_end: Callable[[str], None] = lambda _reason: None,
    ) -> None:
        self._settings = settings
        self._direct = direct
        self._on_end = on_end
        self._is_closing = False
        self.runtime_dir = ""
        self.closes_pool = True

    def start(self) -> None:
        """Start the host.

        Raises:
            HostStartError: the runtime directory cannot be made or locked, or this process has a host.
            OSError: the control socket cannot be opened.
        """
        if not _only.acquire(blocking=False):
            raise HostStartError(
                "this process serves archives already, and can do so once at a time. Name all of them in one "
                "`interpool.asgi.app`, or serve the others from another process"
            )
        try:
            self._start()
        except BaseException:
            _only.release()
            raise

    def _start(self) -> None:
        from interpool.handler.host.pool_host import PoolHost
        from interpool.handler.host.runtime_directory import remove_stale
        from interpool.handler.host.start import raise_limit_of_files

        raise_limit_of_files()
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
            try:
                self._host = PoolHost(
                    Path(self.runtime_dir),
                    shim.DEFAULT_POOL,
                    own,
                    pool,
                    settings=self._settings,
                    server=self._direct()["address"] or f"pid {own}",
                    lasting=True,
                    direct=self._direct,
                )
            except BaseException:
                pool.close()
                raise
        finally:
            os.close(held)
        self._thread = threading.Thread(target=self._run, name="pool host", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        reason = self._host.run()
        if not self._is_closing:
            self._on_end(reason)

    def close(self) -> None:
        """Have the host leave, and wait for that, for ``_LEAVE_S`` at most."""
        self._is_closing = True
        self._host.leave("it is closed")
        self._thread.join(_LEAVE_S)
        if self.closes_pool:
            self._pool.close()
        if not self._thread.is_alive():
            self._host.close()
            _only.release()


@dataclass
class _Served:
    """A model, with its workers and files, which end with it."""

    model: ModelVersion
    workers: Workers
    files: contextlib.ExitStack


class Serving:
    """Models that are served without TorchServe.

    Args:
        archives: the archives' paths, by the names that clients ask for.
        options: the options for all of them.
        settings: the settings of the pool's host; None: those of the environment.
        traffic: returns the counter of a model's answers, given the model's name and version.
        ends_process: whether the process ends when their start is cancelled, without an end of Python's.

    Attributes:
        models: the models that are served.
        settings: the settings of the pool's host.
        address: where they are served, for people; "" if only the surrounding program knows.
        on_host_end: called if the pool's host ends by itself: no model answers any more. The event loop.

    Raises:
        SettingsError: the environment has a setting that is refused.
    """

    def __init__(
        self,
        archives: Mapping[str, Path],
        options: Options,
        settings: HostSettings | None = None,
        traffic: Callable[[str, str], Traffic] = lambda _name, _version: Traffic(),
        *,
        ends_process: bool = False,
    ) -> None:
        self._archives = archives
        self._options = options
        self.settings = settings or HostSettings.of_environment()
        self.models = Models(is_complete=False)
        self.address = ""
        self.on_host_end: Callable[[], None] = lambda: None
        self._traffic = traffic
        self._ends_process = ends_process
        self._served: dict[str, _Served] = {}
        self._retiring: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Run the pool and the models in it, for as long as this is open.

        Raises:
            ServeError: an archive cannot be served, or the host cannot start; the message says why.
        """
        self.models.has_failed = False
        async with contextlib.AsyncExitStack() as stack:
            archives = []
            for name, path in self._archives.items():
                archive, files = _opened(name, path, self._options)
                stack.callback(files.close)
                archives.append((archive, files))
            names = ", ".join(self._archives) or "models to come"
            logger.info("starting a pool for %s (interpreters: %d)", names, self.settings.interpreters)
            loop = asyncio.get_running_loop()

            def note_end(reason: str) -> None:
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(self._note_host_end, reason)

            host = HostThread(self.settings, lambda: self.models.describe(self.address), note_end)
            host.start()
            stack.push_async_callback(asyncio.to_thread, host.close)
            self._runtime_dir = host.runtime_dir
            self._channels = Channels()
            stack.callback(self._channels.close)
            stack.push_async_callback(self._end)
            # More at once would only take from each other's time limits.
            loads = asyncio.Semaphore(self.settings.interpreters)

            async def start(archive: Archive, files: contextlib.ExitStack) -> None:
                async with loads:
                    await self._serve(archive, files)

            try:
                async with asyncio.TaskGroup() as starts:  # the first failure ends the others
                    for archive, files in archives:
                        starts.create_task(start(archive, files))
            except asyncio.CancelledError:
                host.closes_pool = not self._ends_process
                raise
            except BaseExceptionGroup as failures:
                raise failures.exceptions[0] from None
            self.models.is_complete = True
            yield

    def _note_host_end(self, reason: str) -> None:
        logger.error("the pool's host has ended, and no model answers any more: %s", reason)
        self.models.has_failed = True
        self.on_host_end()

    async def add(self, name: str, path: Path, options: Options | None = None) -> None:
        """Serve an archive from now on, while this is open.

        It replaces the model of that name, which first answers the requests that it has.

        Args:
            name: the name that clients ask for.
            path: the archive's path.
            options: the options for this archive; None: those for all of them.

        Raises:
            ServeError: it cannot be served; an earlier model of that name goes on.
        """
        archive, files = await asyncio.to_thread(_opened, name, path, options or self._options)
        await self._serve(archive, files)

    async def remove(self, name: str) -> None:
        """Stop serving a model, after it has answered the requests that it has.

        Raises:
            KeyError: no model of that name is served.
        """
        served = self._served.pop(name)
        self.models.remove(served.model)
        await self._retire(served)

    def why_not_ready(self) -> list[str]:
        """Why served models may not answer, in the words of ``interpool status --check``. Any thread.

        Raises:
            OSError: the pool's host does not answer.
        """
        models = [served.model for served in tuple(self._served.values())]
        directories = {model.directory for model in models}
        patience_s = max((model.queue.settings.response_timeout_s for model in models), default=0)
        state = json.loads(control.ask(Path(self._runtime_dir)))
        # Archives that are being loaded, or have failed to load, do not count.
        state["served"] = {key: value for key, value in state["served"].items() if key in directories}
        state["gone"] = {}
        return [
            f"{one.model}/{one.version}: {reason}"
            for one in readiness([state], ANY, patience_s)
            for reason in one.reasons
        ]

    async def _serve(self, archive: Archive, files: contextlib.ExitStack) -> None:
        queue = ModelQueue(archive.settings)
        stdio = (sys.__stderr__.fileno(), sys.__stderr__.fileno()) if sys.__stderr__ else (2, 2)
        workers = Workers(self._runtime_dir, archive.files, queue, self._channels, stdio)
        count = archive.workers or WORKERS_PER_INTERPRETER * self.settings.interpreters
        try:
            await workers.start(count)
        except BaseException as error:
            await workers.close()
            await asyncio.to_thread(files.close)
            if isinstance(error, LoadFailed | WorkerRefused):
                raise ServeError(f"{archive.name} cannot be served: {error}") from None
            raise
        model = ModelVersion(
            archive.name,
            archive.version,
            queue,
            archive.examples,
            archive.files.model_dir,
            self._traffic(archive.name, archive.version),
        )
        before = self._served.get(archive.name)
        self._served[archive.name] = _Served(model, workers, files)
        self.models.add(model)
        self.models.set_default(model.name, model.version)
        logger.info("%s, version %s, is served by %d workers", archive.name, archive.version, count)
        if before is not None:
            self.models.remove(before.model)
            await self._retire(before)

    async def _retire(self, served: _Served) -> None:
        """End a model that gets no more requests, once it has answered, even if the caller is cancelled."""
        task = asyncio.create_task(_drain(served))
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)
        await asyncio.shield(task)

    async def _end(self) -> None:
        self.models.is_complete = False
        try:
            await asyncio.gather(*(self.remove(name) for name in tuple(self._served)), *self._retiring)
        except asyncio.CancelledError:  # requests are not waited for
            retiring = tuple(self._retiring)
            for task in retiring:
                task.cancel()
            await asyncio.gather(*retiring, return_exceptions=True)
            raise


async def _drain(served: _Served) -> None:
    try:
        await served.model.queue.drain()
    finally:
        await served.workers.close()
        await asyncio.to_thread(served.files.close)


def _opened(name: str, path: Path, options: Options) -> tuple[Archive, contextlib.ExitStack]:
    """Open an archive; returns it with the stack that closes it; raises ServeError."""
    with contextlib.ExitStack() as stack:
        return stack.enter_context(opened(name, path, options)), stack.pop_all()


def limits_of(request_bytes: int | None) -> Limits:
    """The limits of requests, one of which is an option.

    Args:
        request_bytes: the most bytes that a request's body may have; None: the default.

    Raises:
        SettingsError: it is no such number.
    """
    if request_bytes is None:
        return Limits()
    if type(request_bytes) is not int or request_bytes < 1:
        raise SettingsError(f"`request_bytes` cannot be {request_bytes!r}: it is a number of bytes")
    return Limits(request_bytes)


def application(
    serving: Serving, limits: Limits | None = None, headers: Headers | None = None
) -> Application:
    """The application for these models. It opens them when it is started, and closes them at its end.

    Args:
        serving: the models.
        limits: of requests; None: the defaults.
        headers: headers of all answers; None: none.
    """
    return Application(
        serving.models,
        limits,
        headers=headers,
        lifespan=serving.open,
        has_access_lines=serving.settings.direct_access_log,
    )
