"""Registers the direct address's workers with the pool's host, in the roles of both shim and TorchServe.

A worker is registered on the host's control socket (``host/control.py``). Its registration has a channel of
this process (``channels.py``), in place of an address to which TorchServe would connect.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass

from interpool.handler.errors import WorkerRefused
from interpool.handler.frontend import shim
from interpool.handler.torchserve import WORKER_SCRIPT, installed_ts

# Numbers in place of a process id, as there is no shim. The kernel's process ids end at 2^22.
FIRST_NUMBER = 1 << 24
_numbers = itertools.count(FIRST_NUMBER)
_PATIENCE_S = 120.0  # for the host's first interpreter


class WorkerGone(WorkerRefused):
    """The worker of TorchServe's that this one was to be beside has ended."""


@dataclass
class Registered:
    """A worker that the host has taken.

    Attributes:
        peer: the control connection; its end ends the worker.
    """

    peer: socket.socket

    def watch(self, on_end: Callable[[WorkerRefused], None]) -> None:
        """Have ``on_end`` called once, when the host ends the worker, with what ``register`` would raise."""
        loop = asyncio.get_running_loop()

        def heard() -> None:
            try:
                message, descriptors, _, _ = socket.recv_fds(self.peer, shim.MESSAGE_LIMIT, 1)
            except BlockingIOError:
                return
            except OSError:
                message, descriptors = b"", []
            for descriptor in descriptors:
                os.close(descriptor)
            kind, _, reason = message.partition(b"\0")
            if kind != b"served":
                loop.remove_reader(self.peer)
                on_end(_refusal(kind, reason))

        loop.add_reader(self.peer, heard)

    def close(self) -> None:
        """End the worker."""
        with contextlib.suppress(RuntimeError):  # no loop any more
            asyncio.get_running_loop().remove_reader(self.peer)
        self.peer.close()


def _refusal(kind: bytes, reason: bytes) -> WorkerRefused:
    text = reason.decode(errors="replace")
    if kind == b"gone":
        return WorkerGone("its worker has ended")
    if kind == b"stock":
        return WorkerRefused(
            f"{text.rstrip('.')}. If its code is right, TorchServe can serve it, in a process of its own"
        )
    if kind == b"pool":
        return WorkerRefused("its settings ask for a process of its own, which only TorchServe gives it")
    return WorkerRefused(text or "the pool's host has ended it")


def new_address() -> str:
    """An address for a worker, and for the next one in its place: the host counts that as a restart."""
    return f"direct:{next(_numbers)}"


async def register(
    runtime_dir: str,
    model_dir: str,
    channel: int,
    stdio: tuple[int, int],
    address: str,
    beside: dict[str, str] | None = None,
) -> Registered:
    """Register a worker with a host.

    Args:
        runtime_dir: the host's runtime directory.
        model_dir: the directory into which the model's archive is extracted.
        channel: the number of the channel on which the worker gets requests.
        stdio: descriptors for the model's output; the host gets copies.
        address: of its place.
        beside: fields of the registration that are taken from the worker of TorchServe's that this worker is
            beside; None: it is beside none.

    Raises:
        WorkerGone: there is no such worker of TorchServe's any more.
        WorkerRefused: the host does not take it; the message says why.
    """
    home = installed_ts()
    fields = {
        "protocol": shim.PROTOCOL,
        "pid": str(next(_numbers)),
        "address": address,
        "channel": str(channel),
        "model_dir": model_dir,
        "metrics_config": str(home / "configs" / "metrics.yaml"),
        "arguments": str(home / WORKER_SCRIPT),
        **(beside or {}),
    }
    text = "\0".join(["register", *(f"{name}={value}" for name, value in fields.items())])
    with contextlib.ExitStack() as opened:
        try:
            peer = opened.enter_context(socket.socket(fileno=shim.connect_control(runtime_dir).detach()))
            socket.send_fds(peer, [text.encode()], stdio)
        except OSError as error:
            raise WorkerRefused(f"the pool's host cannot be reached: {error}") from error
        peer.setblocking(False)
        try:
            answer = await asyncio.wait_for(_receive(peer), _PATIENCE_S)
        except TimeoutError:
            raise WorkerRefused(f"the pool's host did not answer in {_PATIENCE_S:g} s") from None
        kind, _, reason = answer.partition(b"\0")
        if kind != b"ready":
            raise _refusal(kind, reason)
        opened.pop_all()
        return Registered(peer)


async def _receive(peer: socket.socket) -> bytes:
    """The next message only; b"" at the end of the connection."""
    loop = asyncio.get_running_loop()
    arrived = asyncio.Event()
    loop.add_reader(peer, arrived.set)
    try:
        await arrived.wait()
    finally:
        loop.remove_reader(peer)
    try:
        return peer.recv(shim.MESSAGE_LIMIT)
    except OSError:
        return b""
