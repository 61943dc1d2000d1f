"""The pool host's control socket: which processes may connect, and which messages they exchange.

It is a unix socket of type SEQPACKET in the private runtime directory. One message is one packet. Requests:

- ``register``, with ``name=value`` fields separated by NUL, registers a worker. Its stdout and stderr come
  as passed descriptors. The field ``channel`` is the number of a channel of this process; with it, TorchServe
  does not connect (``direct/``). The host's answers:

  - ``ready``: the host listens where TorchServe is going to connect.
  - ``refused`` and the reason.
  - ``stock`` and the reason: TorchServe's own worker is to serve this model.
  - ``pool`` and a name: the pool of that name is to serve this model.
  - ``gone``: see ``follow``.

  The connection then stays open: its end on either side ends the worker. The host may send more messages:

  - ``served``: the pool serves this ordinary model.
  - ``bye``: the worker's end follows, and is not a failure.
  - ``stock`` and the reason, with TorchServe's connection as a passed descriptor: TorchServe's own worker is
    to take over. A worker of the direct address has no such connection, and its model is not served there.

- ``status``: the host answers with its state as JSON, cut into packets, and end of file.
- ``drain``: the same answer; from then on the host says that it is not ready.
- ``follow``: the host sends a ``worker`` message for each worker of TorchServe's that has its model, now and
  later. It holds what registers another worker beside that one, with stdout and stderr as passed descriptors
  (``direct/followed.py``). A worker that is registered ``beside`` another one gets ``gone`` when that one
  ends, or if it has ended already.
- ``stacks``: the host answers with the interpreters' Python stacks as text, and end of file.
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
    """A worker's registration, from its shim or from the direct address."""

    pid: int  # the shim's process id; of the direct address's worker, a number that no process has
    address: str  # of the socket to which TorchServe is going to connect
    model_dir: str  # the directory of the worker's model
    metrics_config: str  # the path of TorchServe's metrics configuration
    arguments: list[str]  # of TorchServe's command line for the worker
    # The number of the channel that carries requests in place of TorchServe's connection; 0: none.
    channel: int = 0
    beside: int = 0  # ``pid`` of the worker of TorchServe's that this worker is beside; 0: it is beside none


def listen(runtime_dir: Path) -> socket.socket:
    """Listen on the runtime directory's control socket. The caller must hold the instance's lock.

    A socket file that is there belongs to a host that is gone, as the lock proves. It is removed.

    Raises:
        OSError: the socket cannot be made or bound.
    """
    control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
    (runtime_dir / "control").unlink(missing_ok=True)
    # Bound through a descriptor, because a socket's path may be 107 bytes long at most.
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
    """The next message and the descriptors passed with it; both are empty at the end.

    Raises:
        BlockingIOError: no message has come, and ``peer`` does not block.
        OSError: the message cannot be received.
    """
    try:
        message, descriptors, _flags, _address = socket.recv_fds(peer, shim.MESSAGE_LIMIT, 2)
    except ConnectionError:
        return b"", []
    return message, descriptors


def send(peer: socket.socket, kind: str, text: str = "", passing: Sequence[int] = ()) -> bool:
    """Send one message, and do not wait for the other side.

    Args:
        peer: the connection.
        kind: of the message, see above.
        text: what follows the kind; "" for none. It is cut if the message is longer than a packet may be.
        passing: descriptors that are passed with the message.

    Returns:
        False if the other side is gone or does not read.
    """
    packet = f"{kind}\0{text}".encode()[: shim.MESSAGE_LIMIT - 1] if text else kind.encode()
    try:
        socket.send_fds(peer, [packet], passing, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
    except OSError:
        return False
    return True


def send_text(peer: socket.socket, text: str) -> None:
    """Send a text of any length, cut into messages.

    If the peer is gone, or reads nothing for a second, the rest is not sent and the log says so.

    Args:
        peer: the connection; it blocks afterwards, with a timeout of a second.
        text: the text.
    """
    data = text.encode(errors="backslashreplace")
    peer.settimeout(1.0)
    try:
        for start in range(0, len(data), shim.MESSAGE_LIMIT):
            peer.send(data[start : start + shim.MESSAGE_LIMIT], socket.MSG_NOSIGNAL)
    except OSError:
        logger.warning("a status request was not read to its end")


def has_ended(peer: socket.socket) -> bool:
    """Whether a registered worker's shim, at the other end of this connection, is gone."""
    try:
        return not peer.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


def parse_registration(message: bytes) -> Registration:
    """Parse a ``register`` message.

    Raises:
        WorkerRefused: the message is malformed, or comes from another version of interpool.
    """
    kind, *pairs = message.decode(errors="replace").split("\0")
    fields = dict(pair.partition("=")[::2] for pair in pairs)
    numbers = [fields.get(name, "0") for name in ("pid", _BESIDE, _CHANNEL)]
    is_whole = kind == "register" and fields.keys() - {_BESIDE, _CHANNEL} == _FIELDS
    if not is_whole or not all(map(str.isdecimal, numbers)):
        raise WorkerRefused(f"the pool host cannot parse this request: {message[:200]!r}")
    if fields["protocol"] != shim.PROTOCOL:
        raise WorkerRefused(
            "this worker and its pool host come from different versions of interpool; restart TorchServe"
        )
    pid, beside, channel = map(int, numbers)
    return Registration(
        pid=pid,
        address=fields["address"],
        model_dir=fields["model_dir"],
        metrics_config=fields["metrics_config"],
        arguments=fields["arguments"].split(shim.ARGUMENT_SEPARATOR),
        channel=channel,
        beside=beside,
    )


class TurnedAway(OSError):
    """The host answers that it has no file descriptor left for a question."""


def ask(runtime_dir: Path, request: bytes = STATUS_REQUEST, timeout_s: float = 5.0) -> bytes:
    """Ask a host, and return its whole answer.

    Args:
        runtime_dir: the host's runtime directory.
        request: STATUS_REQUEST, DRAIN_REQUEST or STACKS_REQUEST.
        timeout_s: seconds to wait for each part of the answer.

    Raises:
        TurnedAway: the host has no descriptor left for the question.
        TimeoutError: the host does not answer in time, or so many wait for it that it takes no more.
        OSError: no host listens there, or the connection has failed.
    """
    try:
        connected = shim.connect_control(str(runtime_dir), timeout_s)
    except BlockingIOError:
        raise TimeoutError("the queue of the host's control socket is full: it does not answer") from None
    peer = socket.socket(fileno=connected.detach())
    with peer:
        peer.settimeout(timeout_s)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # a host that has no descriptor
            # left sends the reason and closes at once
            peer.send(request)
        parts = []
        while part := shim.receive(peer):
            parts.append(part)
    kind, _, reason = parts[0].partition(b"\0") if parts else (b"", b"", b"")
    if kind == b"refused":
        raise TurnedAway(reason.decode(errors="replace"))
    return b"".join(parts)
