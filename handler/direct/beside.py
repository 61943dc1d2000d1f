"""The direct address beside TorchServe: a thread of the pool's host, with an event loop and a server.

It has a worker beside each worker of TorchServe's, which answers from the same interpreters. The host names
the workers that TorchServe has. It reads all other facts from TorchServe's files and interfaces.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

from interpool.handler.config import model_manifest
from interpool.handler.direct.listening import Address
from interpool.handler.direct.traffic import DirectState
from interpool.handler.errors import SettingsError
from interpool.handler.torchserve import TOKENS_DISABLED, addresses_of, settings_of
from interpool.native.torchserve import MOST_REQUEST_BYTES

if TYPE_CHECKING:
    import uvicorn

    from interpool.handler.direct.channels import Channels
    from interpool.handler.direct.examples import Examples
    from interpool.handler.direct.followed import FollowedWorker, Management, RegisteredName
    from interpool.handler.direct.models import Models, ModelVersion

_REFRESH_S = 1.0
_MOST_ASKED = 20  # the most names that it asks TorchServe about in a second
_START_ATTEMPTS, _START_PAUSE_S = 600, 0.2
_BIND_PATIENCE_S = 30.0  # wait so long until a host that died has released the address
_CORS = (
    ("cors_allowed_origin", b"access-control-allow-origin"),
    ("cors_allowed_methods", b"access-control-allow-methods"),
    ("cors_allowed_headers", b"access-control-allow-headers"),
)

logger = logging.getLogger("interpool.direct")


class DirectAddress:
    """Serves at an address until it is closed. Its methods are for the thread that made it.

    Args:
        address: the address as users write it: ``HOST:PORT`` or ``unix:PATH``.
        runtime_dir: the host's runtime directory.
        frontend: the process id of TorchServe's frontend.
        has_access_lines: whether each request is logged.

    Attributes:
        trouble: why it does not serve, for people; "" if it does, or has not tried yet.

    Raises:
        SettingsError: the address is malformed.
    """

    def __init__(
        self, address: str, runtime_dir: Path, frontend: int, has_access_lines: bool = False
    ) -> None:
        self._has_access_lines = has_access_lines
        self._address = Address.of_text(address)
        self._runtime_dir = str(runtime_dir)
        self._frontend = frontend
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: uvicorn.Server | None = None
        self._is_closed = False
        self._is_draining = False
        self._models: Models | None = None
        self.trouble = ""
        self._thread = threading.Thread(target=self._run, name="direct address", daemon=True)

    def start(self) -> None:
        """Start serving, in a thread of its own. The log says if that fails."""
        self._thread.start()

    def describe(self) -> DirectState | None:
        """The counts of what it has answered; None if it is not served. Any thread."""
        if self._models is None or self._server is None or self.trouble:
            return None
        return self._models.describe(str(self._address))

    def drain(self) -> None:
        """Say that it is not ready, and end connections that it has answered. Any thread."""
        self._is_draining = True
        if self._models is not None:
            self._models.is_draining = True

    def close(self, patience_s: float = 5.0) -> None:
        """Accept no further connection, and end the open ones.

        Args:
            patience_s: seconds to wait for the thread's end.
        """
        self._is_closed = True
        if self._server is not None:
            self._server.should_exit = True
        self._thread.join(patience_s)

    # ---- its thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            import uvloop

            uvloop.run(self._serve())
        except ImportError as error:
            self.trouble = f"the direct address needs {error.name}: pip install 'interpool[direct]'"
            logger.error("%s", self.trouble)
        except (OSError, SettingsError) as error:
            self._fail(error)
            logger.error("%s", self.trouble)
        except Exception as error:
            self._fail(f"{type(error).__name__}: {error}")
            logger.exception("%s", self.trouble)

    def _fail(self, reason: object) -> None:
        self.trouble = f"the direct address {self._address} is not served: {reason}"

    async def _serve(self) -> None:
        from interpool.handler.direct.application import Application, Limits
        from interpool.handler.direct.channels import Channels
        from interpool.handler.direct.followed import Management
        from interpool.handler.direct.models import Models
        from interpool.handler.direct.passing_on import TorchServeClient
        from interpool.handler.direct.server import server
        from interpool.handler.direct.tokens import KEY_FILE, KeyFile

        settings = settings_of(self._frontend)
        inference, management = (
            each.replace("//0.0.0.0", "//127.0.0.1") for each in addresses_of(self._frontend)
        )
        if unix := [each for each in (inference, management) if each.startswith("unix:")]:
            raise SettingsError(
                f"it asks TorchServe over TCP, and TorchServe listens at {unix[0]}: give "
                "inference_address and management_address a port in config.properties"
            )
        home = Path(f"/proc/{self._frontend}/cwd").resolve()
        tls = _tls(settings, home, inference)
        has_tokens = settings.get(TOKENS_DISABLED) != "true"
        keys = KeyFile(home / KEY_FILE)
        if not (self._address.is_local or has_tokens or tls):
            logger.warning(
                "the direct address %s is open to other machines, and asks for neither a token nor TLS",
                self._address,
            )
        client = TorchServeClient(inference, tls.get("ssl_certfile", ""))
        models = self._models = Models(is_complete=False)
        if self._is_draining:  # looked at after `drain` can see the models, so that neither misses the other
            models.is_draining = True
        asked = Management(management, client.session, keys.management if has_tokens else str)
        channels = Channels()
        beside = _Beside(self._runtime_dir, models, asked, channels)
        most = settings.get("max_request_size", "")
        application = Application(
            models,
            Limits(int(most) if most.isdecimal() else MOST_REQUEST_BYTES, body_s=None),
            headers=[
                (header, settings[name].encode("latin-1")) for name, header in _CORS if settings.get(name)
            ],
            guard=keys.guard if has_tokens else None,
            elsewhere=client,
            has_access_lines=self._has_access_lines,
        )
        async with contextlib.AsyncExitStack() as stack:
            listeners = [stack.enter_context(each) for each in await self._bind()]
            self._server = server(application, listeners, **tls)
            if not self._is_closed:
                stack.callback(channels.close)
                stack.push_async_callback(client.close)
                tasks = [asyncio.create_task(beside.follow()), asyncio.create_task(beside.refresh())]
                logger.info("the direct address is %s", self._address)
                try:
                    await self._server.serve()
                finally:
                    for task in tasks:
                        task.cancel()
                    await asyncio.gather(*tasks, return_exceptions=True)
                    await beside.close()

    async def _bind(self) -> list[socket.socket]:
        """Bind the address, and wait if an earlier host has not released it yet; raises OSError."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + _BIND_PATIENCE_S
        while True:
            try:
                bound = self._address.bind()
                self.trouble = ""
                return bound
            except OSError as error:
                if loop.time() > give_up or self._is_closed:
                    raise
                self._fail(error)
                await asyncio.sleep(0.2)


def _tls(settings: dict[str, str], home: Path, inference: str) -> dict[str, str]:
    """TorchServe's key and certificate, if its inference address uses TLS; else {}. Raises SettingsError."""
    if not inference.startswith("https:"):
        return {}
    key, certificate = settings.get("private_key_file", ""), settings.get("certificate_file", "")
    if settings.get("keystore") or not (key and certificate):
        raise SettingsError(
            "TorchServe serves by TLS, and the direct address can do so only with PEM files: "
            "name them as private_key_file and certificate_file in config.properties"
        )
    return {"ssl_keyfile": str(home / key), "ssl_certfile": str(home / certificate)}


class _Beside:
    """The workers beside TorchServe's. For the event loop's thread."""

    def __init__(self, runtime_dir: str, models: Models, management: Management, channels: Channels) -> None:
        self._runtime_dir = runtime_dir
        self._models = models
        self._management = management
        self._channels = channels
        self._known: dict[tuple[str, str], ModelVersion] = {}
        self._locks = weakref.WeakValueDictionary[str, asyncio.Lock]()  # by name, while a task uses it
        self._tasks: dict[str, asyncio.Task[None]] = {}  # of each worker of TorchServe's, by its pid

    async def follow(self) -> None:
        """Take the host's reports on TorchServe's workers, for ever."""
        from interpool.handler.direct.followed import Following

        loop = asyncio.get_running_loop()
        while True:
            ended = asyncio.Event()
            try:
                following = Following(self._runtime_dir, self._add)
            except OSError:
                await asyncio.sleep(0.2)
                continue

            def hear(following: Following = following, ended: asyncio.Event = ended) -> None:
                if not following.hear():
                    loop.remove_reader(following)
                    ended.set()

            loop.add_reader(following, hear)
            try:
                await ended.wait()
            finally:
                loop.remove_reader(following)
                following.close()

    async def refresh(self) -> None:
        """Ask TorchServe again and again for changes that it does not report by itself."""
        while True:
            names = await self._management.names()
            is_complete = names is not None
            pause_s = max(_REFRESH_S / len(names), 1 / _MOST_ASKED) if names else _REFRESH_S
            for name in names or ():
                if default := await self._management.default_version(name):
                    if any(known == name for known, _ in self._known):
                        self._models.set_default(name, default.version)
                    is_complete &= default.is_loaded
                await asyncio.sleep(pause_s)
            self._models.is_complete = is_complete
            if not names:
                await asyncio.sleep(pause_s)

    async def close(self) -> None:
        """End all workers."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _add(self, worker: FollowedWorker) -> None:
        if worker.pid in self._tasks:  # the host reports all workers to each new connection
            worker.close()
            return
        task = self._tasks[worker.pid] = asyncio.get_running_loop().create_task(self._serve(worker))
        task.add_done_callback(lambda _: self._tasks.pop(worker.pid))

    async def _serve(self, worker: FollowedWorker) -> None:
        """Keep a worker beside this one, as long as this one lives."""
        from interpool.handler.direct.supervision import BACK_OFF_S

        with contextlib.closing(worker), contextlib.ExitStack() as kept:
            model = await self._model(worker)
            if model is None:
                return
            model.places += 1
            kept.callback(self._miss_place, model)
            attempts = 0
            while error := await self._keep(worker, model, kept, is_first=not attempts):
                attempts += 1
                pause_s = BACK_OFF_S[min(attempts, len(BACK_OFF_S) - 1)]
                said = "a worker of %s did not start, and is tried again in %g s: %s"
                logger.error(said, model.name, pause_s, error)
                await asyncio.sleep(pause_s)

    async def _keep(
        self, worker: FollowedWorker, model: ModelVersion, kept: contextlib.ExitStack, *, is_first: bool
    ) -> BaseException | None:
        """Keep a worker beside TorchServe's until that one ends.

        Requests wait for the first load. If that fails, they are passed on until a later one succeeds.

        Returns:
            Why the model could not be loaded; None: TorchServe's worker has ended.
        """
        from interpool.handler.direct.host_link import WorkerGone
        from interpool.handler.direct.supervision import Place

        with contextlib.ExitStack() as counted:

            def leave() -> None:  # it may still have a batch to answer
                kept.close()
                counted.close()

            def count(ready: asyncio.Future[None] | None = None) -> None:
                if ready is None or not (ready.cancelled() or ready.exception()):
                    model.queue.wanted += 1
                    counted.callback(self._miss_worker, model)

            place = Place(
                self._runtime_dir,
                worker.files,
                model.queue,
                self._channels,
                worker.stdio,
                worker.beside,
                on_leave=leave,
            )
            if is_first:
                count()
            else:
                place.ready.add_done_callback(count)
            await place.keep()
            error = place.ready.exception()
            if error is None or isinstance(error, WorkerGone):
                leave()
                return None
            return error

    def _miss_worker(self, model: ModelVersion) -> None:
        """Note that a model has one worker fewer. Without any, requests for it are passed on."""
        from interpool.handler.direct.models import model_not_found
        from interpool.handler.direct.worker import worker_died

        model.queue.wanted -= 1
        if not model.queue.wanted:
            model.queue.refuse_waiting(worker_died() if model.places else model_not_found(model.name))

    def _miss_place(self, model: ModelVersion) -> None:
        """Note that a worker of TorchServe's has ended, and remove the model with the last one."""
        model.places -= 1
        if not model.places and self._known.get((model.name, model.version)) is model:
            del self._known[model.name, model.version]  # else it is registered anew
            self._models.remove(model)

    async def _model(self, worker: FollowedWorker) -> ModelVersion | None:
        """The model of a worker; None if TorchServe's own frontend must assign its requests."""
        from interpool.handler.direct.models import ModelVersion
        from interpool.handler.direct.queue import ModelQueue

        key = worker.name, worker.version
        async with self._locks.setdefault(worker.name, asyncio.Lock()):
            known = self._known.get(key)
            if known is not None and known.directory == worker.files.model_dir:
                return known
            registration = await self._registration(worker)
            if registration is None or worker.version in registration.left:
                return None
            queue = ModelQueue(registration.settings[worker.version])
            examples = await asyncio.to_thread(_examples, Path(worker.files.model_dir))
            model = ModelVersion(worker.name, worker.version, queue, examples, worker.files.model_dir)
            self._known[key] = model
            self._models.set_default(worker.name, registration.default)
            self._models.add(model)
            return model

    async def _registration(self, worker: FollowedWorker) -> RegisteredName | None:
        """How a worker's name and version are registered; None if TorchServe does not say.

        It asks again for a while: a TorchServe that starts answers only after its workers have started.
        """
        for _ in range(_START_ATTEMPTS):
            registration = await self._management.registration(worker.name)
            if registration is not None and worker.version in registration.settings:
                return registration
            await asyncio.sleep(_START_PAUSE_S)
        logger.error("TorchServe's management interface does not say how %s is registered", worker.name)
        return None


def _examples(model_dir: Path) -> Examples:
    from interpool.handler.direct.examples import Examples

    try:
        return Examples.of_directory(model_dir, model_manifest(model_dir))
    except SettingsError:  # the load of the model reports what is wrong with it
        return Examples()
