"""Ordinary archives' models, each loaded and asked as by a worker, in one interpreter."""

from __future__ import annotations

import itertools
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import otf
from extracted import extracted, token
from serving_client import Client

from interpool.handler.host.service_entry import SERVICE_FUNCTION, SERVICE_MODULE
from interpool.native import InterpreterManager, InterpreterSession, PyObj


def replied(session: InterpreterSession, service: PyObj, message: bytes) -> bytes:
    reply: bytes = session.global_("builtins", "bytes")(service(message)[0]).to_value()
    return reply


def command(directory: Path) -> bytes:
    return otf.load(directory.name, str(directory), handler="handler.py:handle")


def service_of(session: InterpreterSession, directory: Path, code: str, log: int = -1, **files: str) -> PyObj:
    """The service of a worker whose model has that code in its handler file."""
    extracted(directory)
    for name, text in {"handler": code, **files}.items():
        (directory / f"{name}.py").write_text(text)
    session.global_("importlib", "import_module")(SERVICE_MODULE)
    worker = token(log, ordinary=True, model_dir=str(directory)).as_text()
    return session.global_(SERVICE_MODULE, SERVICE_FUNCTION)(worker, command(directory))


def loaded(session: InterpreterSession, directory: Path, code: str, log: int = -1, **files: str) -> PyObj:
    """The same, once the model is loaded."""
    service = service_of(session, directory, code, log, **files)
    assert replied(session, service, command(directory))[:4] == otf.integer(200)
    return service


def asked(session: InterpreterSession, service: PyObj) -> str:
    """What the model answers."""
    reply = replied(session, service, otf.predict(b""))
    return next(iter(otf.answers(reply).values()))[2].decode()


ANSWERS = """
def handle(data, context):
    return None if data is None else [answer()]
"""


class Worker:
    """A worker's connection to a pool.

    Args:
        manager: the pool.
        directory: of the extracted model.
        code: its handler file, which is written if the directory is not there.
        more: what replaces what the host says of the worker.
    """

    _ids = itertools.count()

    def __init__(self, manager: InterpreterManager, directory: Path, code: str, **more: Any) -> None:
        if not directory.exists():
            (extracted(directory) / "handler.py").write_text(code)
        worker = token(ordinary=True, own_directory=True, model_dir=str(directory), **more).as_text()
        self._client = Client(
            manager, SERVICE_FUNCTION, module=SERVICE_MODULE, affinity=str(directory), worker=worker
        )
        self._client.send(command(directory))
        reply = self._client.socket.recv(1 << 16)
        assert reply[:4] == otf.integer(200), reply

    def begin(self, body: bytes = b"") -> str:
        """Ask, and do not wait for the answer; returns the request's id."""
        name = f"{next(self._ids):09}"
        self._client.send(otf.predict(body).replace(b"request-0", name.encode()))
        return name

    def interrupt(self) -> None:
        """Interrupt the running call, if there is one."""
        self._client.connection.interrupt()

    def ask(self, body: bytes = b"") -> str:
        """What the model answers."""
        name = self.begin(body)
        reply = b""
        while True:
            reply += self._client.socket.recv(1 << 16)
            with suppress(struct.error):  # the rest is still to come
                ((answered, (_, _, said)),) = otf.answers(reply).items()
                assert answered == name
                return said.decode()

    def close(self) -> None:
        self._client.close()
