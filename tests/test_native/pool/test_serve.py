"""Connections that speak TorchServe's protocol, answered by a pool."""

from __future__ import annotations

import json
import socket

import otf
import pytest
from interpool_testing import every_interpreter
from serving_client import Connect

from interpool.native import InterpreterManager

LOAD = otf.load()
PREDICT = otf.predict(b"body")


def test_each_message_reaches_the_function_with_the_first_one(connect: Connect) -> None:
    client = connect(worker="worker-7")
    first = client.ask(LOAD)
    assert bytes.fromhex(first["load_command"]) == bytes.fromhex(first["frame"]) == LOAD
    assert first["worker"] == "worker-7"
    second = client.ask(PREDICT)
    assert bytes.fromhex(second["load_command"]) == LOAD
    assert bytes.fromhex(second["frame"]) == PREDICT


@pytest.mark.parametrize(
    "frame",
    [
        otf.predict(),
        otf.predict(b"one", b"two", b"three"),
        otf.predict(b"x", headers={"Content-Type": "a/b", "X": ""}, parameters={"p": b"1", "q": b""}),
        otf.predict(b"I" + otf.integer(-1) * 3),
        otf.load("", "", handler=""),
        otf.load("mödel", "/päth" * 100, batch=2**31 - 1),
    ],
    ids=["no request", "batch", "headers", "like a message", "empty load", "load"],
)
def test_a_message_is_taken_whole_and_no_further(connect: Connect, frame: bytes) -> None:
    client = connect()
    client.send(LOAD + frame + frame + PREDICT)  # all at once
    frames = [bytes.fromhex(json.loads(client.line())["frame"]) for _ in range(4)]
    assert frames == [LOAD, frame, frame, PREDICT]


def test_a_large_message_arrives_whole(connect: Connect) -> None:
    client = connect("length")
    large = otf.predict(bytes(40 * 2**20))
    client.send(LOAD + large)
    assert int(client.line()) == len(LOAD)
    assert int(client.line()) == len(large)


def test_a_message_that_a_function_keeps_stays_as_it_was(connect: Connect) -> None:
    client = connect("keep")
    client.send(LOAD)
    client.line()
    for size in (2, 2**20):
        for letters in (b"aa", b"bb", b"cc"):
            client.send(otf.predict(letters * size))
            shown = client.line().split()
        assert shown[:6] == [b"cc", b"cc", b"bb", b"bb", b"aa", b"aa"]


def test_a_reply_may_be_large_or_nothing(connect: Connect) -> None:
    client = connect("follow")
    client.send(LOAD)
    assert client.line() == b"ok\n"
    client.send(otf.predict(b"(large)"))
    assert client.read(2**24) == bytes(2**24)
    client.send(otf.predict(b"(nothing)") + PREDICT)
    assert client.line() == b"ok\n"


def test_the_function_may_write_ahead_of_its_reply(connect: Connect) -> None:
    client = connect("follow")
    client.send(otf.predict(b"(stream)"))
    assert [client.line() for _ in range(3)] == [b"one\n", b"two\n", b"ok\n"]


def test_a_peer_that_does_not_read_holds_no_interpreter(
    connect: Connect, manager: InterpreterManager
) -> None:
    clients = [connect("follow") for _ in range(len(manager))]
    for client in clients:
        client.send(otf.predict(b"(large)"))
    for client in clients:
        client.socket.recv(1, socket.MSG_PEEK)  # all replies have begun
    with every_interpreter(manager):
        pass
    for client in clients:
        assert client.read(2**24) == bytes(2**24)


@pytest.mark.long
def test_each_connection_of_a_model_with_interpreters_of_its_own_keeps_to_one(
    connect: Connect, manager: InterpreterManager
) -> None:
    manager.isolate("apart")
    clients = [connect(worker=str(number), affinity="apart") for number in range(2)]
    beside = connect(worker="beside", affinity="beside")
    try:
        seen: list[set[int]] = [set(), set()]
        others = set()
        for _ in range(5):
            for client, numbers in zip(clients, seen, strict=True):
                numbers.add(client.ask(LOAD)["interpreter"])
            others.add(beside.ask(LOAD)["interpreter"])
        assert [len(numbers) for numbers in seen] == [1, 1]
        assert seen[0] != seen[1]
        assert others.isdisjoint(seen[0] | seen[1])
    finally:
        manager.forget("apart")
