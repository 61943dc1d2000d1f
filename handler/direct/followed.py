"""Reports on TorchServe's workers and models to the direct address beside TorchServe.

The host reports new workers at once (``follow`` in ``host/control.py``). TorchServe's management interface
says how a model is registered, and which version is its default. It does not report changes, so it is asked
again and again.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import aiohttp

from interpool.handler.direct.queue import QueueSettings
from interpool.handler.direct.supervision import ModelFiles
from interpool.handler.frontend import shim
from interpool.handler.torchserve import name_in_load_command

_PAGE = 100  # the most names that TorchServe gives in one answer
_UNSAID = (aiohttp.ClientError, OSError, ValueError, KeyError, TypeError)

logger = logging.getLogger("interpool.direct")


@dataclass
class FollowedWorker:
    """A worker of TorchServe's that has its model.

    Attributes:
        name: its model's name.
        version: its model's version.
        files: the files for a worker beside it.
        stdio: descriptors for the output of such a worker; ``close`` closes them.
        beside: see ``host_link.register``.
    """

    name: str
    version: str
    files: ModelFiles
    stdio: tuple[int, int]
    beside: dict[str, str]

    @property
    def pid(self) -> str:
        """The process id of its shim."""
        return self.beside["beside"]

    def close(self) -> None:
        """Close its descriptors."""
        for descriptor in self.stdio:
            os.close(descriptor)


def _worker_of(message: bytes, stdio: tuple[int, int]) -> FollowedWorker:
    fields: dict[str, Any] = json.loads(message)
    command = base64.b64decode(fields["load_command"])
    name = name_in_load_command(command)
    files = ModelFiles(name, fields["model_dir"], command, float(fields["load_limit_s"]))
    same = {key: str(fields[key]) for key in ("metrics_config", "arguments")}
    return FollowedWorker(name, fields["version"], files, stdio, {**same, "beside": str(fields["pid"])})


class Following:
    """The connection on which the host reports workers. For the event loop's thread.

    Args:
        runtime_dir: the host's runtime directory.
        on_worker: called once with each worker, whose descriptors it must close.

    Raises:
        OSError: no host listens there.
    """

    def __init__(self, runtime_dir: str, on_worker: Callable[[FollowedWorker], None]) -> None:
        self._on_worker = on_worker
        self._peer = socket.socket(fileno=shim.connect_control(runtime_dir).detach())
        self._peer.setblocking(False)
        self._peer.send(shim.FOLLOW_REQUEST)

    def fileno(self) -> int:
        """The descriptor for the loop, which calls ``hear`` when it is readable."""
        return self._peer.fileno()

    def hear(self) -> bool:
        """Take the messages that have come; False at the end of the connection."""
        while True:
            try:
                message, descriptors, _, _ = socket.recv_fds(self._peer, shim.MESSAGE_LIMIT, 2)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if not message:
                return False
            kind, _, text = message.partition(b"\0")
            if kind == b"worker" and len(descriptors) == 2:
                for descriptor in descriptors:
                    os.set_inheritable(descriptor, False)
                self._on_worker(_worker_of(text, (descriptors[0], descriptors[1])))
            else:
                for descriptor in descriptors:
                    os.close(descriptor)

    def close(self) -> None:
        """Close the connection."""
        self._peer.close()


@dataclass(frozen=True)
class RegisteredName:
    """How TorchServe has a name registered.

    Attributes:
        default: the version that answers requests which name none.
        settings: the queue's settings, by version.
        left: versions whose requests TorchServe's own frontend must assign to workers.
    """

    default: str
    settings: dict[str, QueueSettings]
    left: frozenset[str]


@dataclass(frozen=True)
class DefaultVersion:
    """The version of a name that answers requests which name none.

    Attributes:
        version: its number.
        is_loaded: whether it has as many workers with the model as it should.
    """

    version: str
    is_loaded: bool


class Management:
    """A client of TorchServe's management interface.

    Args:
        address: the interface's address, with http:// or https://.
        session: returns the session for requests to TorchServe.
        key: returns the token; "" if none is needed.
    """

    def __init__(
        self, address: str, session: Callable[[], aiohttp.ClientSession], key: Callable[[], str]
    ) -> None:
        self._address = address.rstrip("/")
        self._session = session
        self._key = key

    async def names(self) -> list[str] | None:
        """The names of all models; None if TorchServe does not say."""
        names: list[str] = []
        page: str | None = "0"
        try:
            while page:
                listed = await self._ask(f"/models?limit={_PAGE}&next_page_token={page}")
                names += [str(one["modelName"]) for one in listed["models"]]
                page = listed.get("nextPageToken")
        except _UNSAID as error:
            logger.debug("TorchServe does not say which models it has: %r", error)
            return None
        return names

    async def registration(self, name: str) -> RegisteredName | None:
        """How a model's name is registered; None if TorchServe does not say."""
        try:
            every = await self._ask(f"/models/{name}/all")
            default = await self.default_version(name)
            if default is None:
                return None
            return RegisteredName(
                default=default.version,
                settings={str(one["modelVersion"]): _settings(one) for one in every},
                left=frozenset(str(one["modelVersion"]) for one in every if _is_left(one)),
            )
        except _UNSAID as error:
            logger.debug("TorchServe does not say how %s is registered: %r", name, error)
            return None

    async def default_version(self, name: str) -> DefaultVersion | None:
        """The default version of a model's name; None if TorchServe does not say."""
        try:
            (answer,) = await self._ask(f"/models/{name}")
            return DefaultVersion(str(answer["modelVersion"]), _is_loaded(answer))
        except _UNSAID as error:
            logger.debug("TorchServe does not say which version of %s is the default: %r", name, error)
            return None

    async def _ask(self, path: str) -> Any:
        key = self._key()
        headers = {"authorization": f"Bearer {key}"} if key else {}
        timeout = aiohttp.ClientTimeout(total=10)
        async with self._session().get(self._address + path, headers=headers, timeout=timeout) as answer:
            answer.raise_for_status()
            return json.loads(await answer.read())


def _settings(version: dict[str, Any]) -> QueueSettings:
    queue = version.get("jobQueueStatus") or {}
    size = int(queue.get("remainingCapacity", 100)) + int(queue.get("pendingRequests", 0))
    return QueueSettings(
        batch_size=max(1, int(version["batchSize"])),
        batch_delay_s=int(version["maxBatchDelay"]) / 1000,
        queue_size=size,
        response_timeout_s=float(version["responseTimeout"]),
        client_timeout_s=max(0, int(version["clientTimeoutInMills"])) / 1000,
    )


def _is_loaded(version: dict[str, Any]) -> bool:
    ready = [one for one in version["workers"] if one["status"] == "READY"]
    return len(ready) >= int(version["minWorkers"])


def _is_left(version: dict[str, Any]) -> bool:
    """Whether TorchServe assigns requests to workers not only by which worker is idle."""
    return bool(version.get("stateful") or version.get("continuousBatching") or version.get("useJobTicket"))
