"""Runs in an interpreter: answers of a served connection, as the request's body asks for them."""

from __future__ import annotations

import ctypes
import decimal
import io
import json
import os
import re
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from ts.protocol.otf_message_handler import create_predict_response

import _interpool
from interpool.native.inside import interpreter_id

Service = Callable[[str, bytes], Callable[[memoryview], Any]]


def service(function: Callable[[str, bytes, bytes], Any]) -> Service:
    """Give a function all that a connection has, with each of its messages."""
    return lambda worker, load_command: lambda frame: function(worker, load_command, bytes(frame))


@service
def describe(worker: str, load_command: bytes, frame: bytes) -> tuple[bytes, bool]:
    """What arrived, as a line of JSON."""
    described = {
        "worker": worker,
        "load_command": load_command.hex(),
        "frame": frame.hex(),
        "interpreter": interpreter_id(),
    }
    return json.dumps(described).encode() + b"\n", True


def keep(worker: str, load_command: bytes) -> Callable[[memoryview], tuple[bytes, bool]]:
    """Keeps a view of each message, and answers what all so far show: the ends of those that can be read."""
    kept: list[Any] = []

    def look(frame: memoryview) -> tuple[bytes, bool]:
        kept.extend([frame[1:], np.frombuffer(frame, np.uint8)])
        return b" ".join(bytes(view)[-10:-4].strip(b"\xff\0") for view in kept[::-1]) + b"\n", True

    return look


@service
def length(worker: str, load_command: bytes, frame: bytes) -> tuple[bytes, bool]:
    return b"%d\n" % len(frame), True


@service
def follow(worker: str, load_command: bytes, frame: bytes) -> tuple[bytes, bool]:
    """Does what a word in parentheses in the frame says."""
    if b"(raise)" in frame:
        raise LookupError(f"asked of {worker}")
    if b"(exit)" in frame:
        raise SystemExit(3)
    if b"(end)" in frame:
        return b"last\n", False
    if b"(stream)" in frame:
        for part in (b"one\n", b"two\n"):
            _interpool.send_part(part)
    if b"(nothing)" in frame:
        return b"", True
    if b"(large)" in frame:
        return bytes(2**24), True
    if b"(slow)" in frame:
        time.sleep(0.5)
    if waits := re.search(rb"\(hold the GIL for (\d+)\)", frame):
        ctypes.PyDLL(None).read(int(waits[1]), ctypes.create_string_buffer(1), 1)
    if waits := re.search(rb"\(wait for (\d+)\)", frame):
        os.read(int(waits[1]), 1)
    return b"ok\n", True


@service
def answer(worker: str, load_command: bytes, frame: bytes) -> tuple[bytes, bool]:
    """A whole answer without predictions."""
    return bytes(create_predict_response([], {}, worker, 200)), True


@service
def echo(worker: str, load_command: bytes, frame: bytes) -> tuple[bytes, bool]:
    """An answer whose one prediction is the message."""
    return bytes(create_predict_response([frame], {0: "request-0"}, worker, 200)), True


def loop_for_ever() -> None:
    while True:
        pass


@service
def interruptible(worker: str, load_command: bytes, frame: bytes) -> tuple[bytes, bool]:
    """Does what a word in parentheses in the frame says, as the code of a model."""
    if waits := re.search(rb"\(wait for (\d+)", frame):
        os.read(int(waits[1]), 1)  # not the model
    try:
        if b"(loop)" in frame:
            _interpool.call_interruptible(loop_for_ever)
        return _interpool.call_interruptible(lambda: b"counted\n"), True
    except _interpool.CallInterrupted:
        return b"interrupted\n", True


def wait_again(gate: int) -> None:
    os.read(gate, 1)


@service
def goes_on(worker: str, load_command: bytes, frame: bytes) -> tuple[bytes, bool]:
    """Waits at two gates that the frame names; the model is called between them."""
    first, second = (int(gate) for gate in re.findall(rb"\(wait for (\d+)\)", frame))
    os.read(first, 1)
    try:
        _interpool.call_interruptible(lambda: None)
    except _interpool.CallInterrupted:
        _interpool.send_part(b"interrupted\n")
    wait_again(second)
    return b"whole\n", True


@service
def recurse(worker: str, load_command: bytes, frame: bytes) -> tuple[bytes, bool]:
    """As deep through C as a recursion limit of 1000 lets it."""

    def key(_: object) -> object:
        return sorted([1], key=key)  # type: ignore[type-var]

    try:
        key(1)
    except RecursionError:
        return json.dumps("too deep").encode() + b"\n", True
    return b"null\n", True


@service
def torchserve(worker: str, load_command: bytes, frame: bytes) -> tuple[bytes, bool]:
    """Answers by TorchServe's own code: each request with what it holds, as JSON."""
    from ts.protocol.otf_message_handler import create_load_model_response, retrieve_msg

    if frame[:1] == b"L":
        return bytes(create_load_model_response(200, worker)), True
    _, batch = retrieve_msg(_Stream(frame))
    ids = {number: request["requestId"].decode() for number, request in enumerate(batch)}
    answers = []
    for request in batch:
        headers = {each["name"].decode(): each["value"].decode() for each in request["headers"]}
        parts = [
            [part["name"], part["contentType"], bytes(part["value"]).hex()] for part in request["parameters"]
        ]
        answers.append(json.dumps([headers, parts]))
    first = batch[0]["requestId"] if batch else b""
    if first.startswith(b"stream"):
        for part in ("one", "two"):
            _interpool.send_part(_reply(ids, [part]))
    if first.startswith(b"wait"):
        time.sleep(0.2)
    return _reply(ids, answers), not first.startswith(b"end")


class _Stream(io.BytesIO):
    recv = io.BytesIO.read


def _reply(ids: dict[int, str], answers: list[str]) -> bytes:
    from ts.context import Context, RequestProcessor
    from ts.protocol.otf_message_handler import create_predict_response

    context = Context("m", "/m", {}, len(ids), None, "1")
    context.request_ids = ids
    context.request_processor = [RequestProcessor({}) for _ in ids]
    for number in ids:
        context.set_response_header(number, "x-number", str(number))
    return bytes(create_predict_response(answers, ids, "said", 200, context))


@service
def answers_none(worker: str, load_command: bytes, frame: bytes) -> None:
    return None


@service
def answers_text(worker: str, load_command: bytes, frame: bytes) -> tuple[str, bool]:
    return "text", True


_of_models: dict[bytes, dict[str, Any]] = {}


@service
def bound_to_thread(worker: str, load_command: bytes, frame: bytes) -> tuple[bytes, bool]:
    """The first message of a model makes what is bound to its thread; others use it."""
    made = _of_models.get(load_command)
    if made is None:
        made = _of_models[load_command] = {
            "local": threading.local(),
            "database": sqlite3.connect(":memory:"),
        }
        made["local"].value = worker
        made["database"].execute("create table made_by (worker)")
        made["database"].execute("insert into made_by values (?)", (worker,))
        decimal.getcontext().prec = 5
        np.seterr(divide="raise")
    described = {
        "local": getattr(made["local"], "value", None),
        "database": made["database"].execute("select worker from made_by").fetchone()[0],
        "precision": decimal.getcontext().prec,
        "numpy": np.geterr()["divide"],
        "interpreter": interpreter_id(),
    }
    return json.dumps(described).encode() + b"\n", True


@service
def thread_state(worker: str, load_command: bytes, frame: bytes) -> tuple[bytes, bool]:
    """What a model finds that has set nothing."""
    described = {"precision": decimal.getcontext().prec, "numpy": np.geterr()["divide"]}
    return json.dumps(described).encode() + b"\n", True


def thread_number() -> int:
    return threading.get_native_id()
