"""What a shim says to a pool host, and what TorchServe does then, from a test's own process."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from extracted import extracted

from interpool.handler.frontend import shim


class Shim:
    """What a shim does, in this process, with pipes as its log."""

    def __init__(self, runtime: Path, address: str, model_dir: Path, **fields: str) -> None:
        self.peer = socket.socket(fileno=shim.connect_control(str(runtime)).detach())
        self.peer.settimeout(60)
        self.address = address
        self.stream: socket.socket | None = None
        self.out = os.pipe()
        self.err = os.pipe()
        message = {
            "protocol": shim.PROTOCOL,
            "pid": str(os.getpid()),
            "address": address,
            "model_dir": str(model_dir),
            "metrics_config": "/m.yaml",
            "arguments": "worker.py",
            **fields,
        }
        text = "\0".join(["register", *(f"{name}={value}" for name, value in message.items())])
        try:
            socket.send_fds(self.peer, [text.encode()], [self.out[1], self.err[1]])
        except OSError:
            self.close()
            raise
        finally:
            os.close(self.out[1])
            os.close(self.err[1])

    def connect(self) -> None:
        """What TorchServe does."""
        self.stream = connect(Path(self.address.removeprefix("unix:")))

    def answer(self) -> str:
        return shim.receive(self.peer).decode()

    def log_is_closed(self) -> bool:
        os.set_blocking(self.out[0], False)
        try:
            return os.read(self.out[0], 100) == b""
        except BlockingIOError:
            return False

    def close(self) -> None:
        if self.stream is not None:
            self.stream.close()
        self.peer.close()
        for descriptor in (self.out[0], self.err[0]):
            os.close(descriptor)


def connect(path: Path) -> socket.socket:
    stream = socket.socket(socket.AF_UNIX)
    stream.connect(str(path))
    return stream


def new_model(directory: Path, **model: str) -> Path:
    """An extracted archive of ours, with nothing in it but its manifest."""
    return extracted(directory, handler="interpool_handler.py", **model)
