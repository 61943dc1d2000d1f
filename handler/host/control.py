"""The pool host's control socket: who may talk to it, and what is said.

A unix socket of type SEQPACKET in the private runtime directory; one message is one packet.

- ``register`` and ``name=value`` fields, separated by NUL, with the worker's stdout and stderr
  as passed descriptors. With a ``channel``, the number of one of this process, nobody is going to connect
  (``direct/``). Answered by ``ready`` once the host listens where TorchServe is going
  to connect, by ``refused`` and the reason, by ``stock`` and the reason: TorchServe's own worker
  is to serve this model; or by ``pool`` and the name of the pool that is to. The connection then
  stays open: its end on either side ends the worker. ``served`` says of an ordinary model that the
  pool serves it; ``bye`` announces an end that is not a failure; ``stock``, with TorchServe's
  connection as a passed descriptor, that its own worker is to take over.
- ``status``: answered by the host's state as JSON, cut into packets, and end of file.
- ``drain``: answered likewise; from then on the host says that it is not ready.
- ``follow``: answered by a ``worker`` message for each worker of TorchServe's that has its model, now and
  later: what is needed to register one beside it, and its stdout and stderr as passed descriptors
  (``direct/followed.py``). A worker that is registered ``beside`` another one hears ``bye`` when that ends,
  and ``gone`` if it has ended already.
- ``stacks``: answered likewise by the interpreters' Python stacks, as text.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from interpool.handler.errors import WorkerRefused
from interpool.handler.frontend import shim

STATUS_REQUEST = b"status"
DRAIN_REQUEST = b"drain"
STACKS_REQUEST = b"stacks"
_CREDENTIALS = struct.Struct("3i")
_FIELDS = frozenset({"protocol", "pid", "address", "model_dir", "metrics_config", "arguments"})
_BESIDE, _CHANNEL = "beside", "channel"  # fields that may be missing

logger = logging.getLogger("interpool.host")


@dataclass(frozen=True)
class Registration:
    """What a shim says about the worker that it stands for."""

    pid: int
    address: str
    model_dir: str
    metrics_config: str
    arguments: list[str]
    channel: int = 0  # asks it, in the place of TorchServe's connection; 0: none
    beside: int = 0  # the process of the shim of TorchServe's worker that it is beside; 0: it is none's


def listen(runtime_dir: Path) -> socket.socket:
    """Listen on the runtime directory's control socket; needs the instance's lock.

    Whatever socket file stands there belongs to a host that is gone: the lock says so.
    """
    control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
    (runtime_dir / "control").unlink(missing_ok=True)
    # Through a descriptor, because a socket's path may be 107 bytes long at most.
    directory = os.open(runtime_dir, os.O_PATH | os.O_DIRECTORY)
    try:
        control.bind(f"/proc/self/fd/{directory}/control")
    finally:
        os.close(directory)
    control.listen(1024)
    return control


def same_user(peer: socket.socket) -> bool:
    """Whether the process at the other end runs as this process's user."""
    packed = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _pid, uid, _gid = _CREDENTIALS.unpack(packed)
    return bool(uid == os.getuid())


def receive(peer: socket.socket) -> tuple[bytes, list[int]]:
    """The next message and the descriptors passed with it; empty at the end."""
    try:
        message, descriptors, _flags, _address = socket.recv_fds(peer, shim.MESSAGE_LIMIT, 2)
    except ConnectionError:
        return b"", []
    return message, descriptors


def send(peer: socket.socket, kind: str, text: str = "", passing: Sequence[int] = ()) -> bool:
    """Send one message without waiting, with the descriptors that are passed.

    False if the other side is gone or does not read.
    """
    packet = f"{kind}\0{text}".encode()[: shim.MESSAGE_LIMIT - 1] if text else kind.encode()
    try:
        socket.send_fds(peer, [packet], passing, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
    except OSError:
        return False
    return True


def send_text(peer: socket.socket, text: str) -> None:
    """Send a text of any length, cut into messages; wait a second at most for a peer that does not read."""
    data = text.encode(errors="backslashreplace")
    peer.settimeout(1.0)
    try:
        for start in range(0, len(data), shim.MESSAGE_LIMIT):
            peer.send(data[start : start + shim.MESSAGE_LIMIT], socket.MSG_NOSIGNAL)
    except OSError:
        logger.warning("a status request was not read to its end")


def has_ended(peer: socket.socket) -> bool:
    """Whether the other side of a registered worker's connection is gone."""
    try:
        return not peer.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


def parse_registration(message: bytes) -> Registration:
    """The fields of a ``register`` message; raises WorkerRefused."""
    kind, *pairs = message.decode(errors="replace").split("\0")
    fields = dict(pair.partition("=")[::2] for pair in pairs)
    if kind != "register" or fields.keys() - {_BESIDE, _CHANNEL} != _FIELDS or not fields["pid"].isdecimal():
        raise WorkerRefused(f"the pool host cannot parse this request: {message[:200]!r}")
    if fields["protocol"] != shim.PROTOCOL:
        raise WorkerRefused(
            "this worker and its pool host come from different versions of interpool; restart TorchServe"
        )
    return Registration(
        pid=int(fields["pid"]),
        address=fields["address"],
        model_dir=fields["model_dir"],
        metrics_config=fields["metrics_config"],
        arguments=fields["arguments"].split(shim.ARGUMENT_SEPARATOR),
        channel=int(fields.get(_CHANNEL, "0")),
        beside=int(fields.get(_BESIDE, "0")),
    )


def ask_status(runtime_dir: Path, timeout_s: float = 5.0) -> bytes:
    """The state, as JSON text, of the host in ``runtime_dir``; raises OSError."""
    return _ask(runtime_dir, STATUS_REQUEST, timeout_s)


def ask_to_drain(runtime_dir: Path, timeout_s: float = 5.0) -> bytes:
    """``ask_status`` of a host that says from now on that it is not ready; raises OSError."""
    return _ask(runtime_dir, DRAIN_REQUEST, timeout_s)


def ask_stacks(runtime_dir: Path, timeout_s: float = 10.0) -> bytes:
    """The Python stacks in the host in ``runtime_dir``, for people; raises OSError."""
    return _ask(runtime_dir, STACKS_REQUEST, timeout_s)


class TurnedAway(OSError):
    """The host has no file descriptor to spare for a question, and says so."""


def _ask(runtime_dir: Path, request: bytes, timeout_s: float) -> bytes:
    peer = socket.socket(fileno=shim.connect_control(str(runtime_dir)).detach())
    with peer:
        peer.settimeout(timeout_s)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # closed at once, and said why
            peer.send(request)
        parts = []
        while part := shim.receive(peer):
            parts.append(part)
    kind, _, reason = parts[0].partition(b"\0") if parts else (b"", b"", b"")
    if kind == b"refused":
        raise TurnedAway(reason.decode(errors="replace"))
    return b"".join(parts)
