"""How served connections end: by either side, by mistake, or by what they ask for."""

from __future__ import annotations

import socket

import otf
import pytest
from interpool_testing import run_program
from serving_client import Connect

from interpool.native import InterpreterManager

LOAD = otf.load()


def test_the_function_may_end_the_connection_with_its_reply(connect: Connect) -> None:
    client = connect("follow")
    client.send(LOAD)
    assert client.line() == b"ok\n"
    client.send(otf.predict(b"(end)"))
    assert client.line() == b"last\n"
    assert client.at_end()
    assert client.ended()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "unknown command 71"),
        (b"L" + otf.integer(-(2**31)), "negative length"),
        (b"I" + otf.integer(-2), "negative length"),
        (b"I" + otf.field("id") + otf.field("name") + otf.integer(-1), "negative length"),
        (LOAD + b"?", "unknown command 63"),
    ],
    ids=["http", "load min", "predict -2", "header -1", "second"],
)
def test_a_message_that_breaks_the_protocol_ends_the_connection(
    connect: Connect, capfd: pytest.CaptureFixture[str], data: bytes, said: str
) -> None:
    client = connect(affinity="a model of this name")
    client.send(data)
    if data.startswith(LOAD):
        client.line()
    assert client.at_end()
    assert client.ended()
    logged = capfd.readouterr().err
    assert "a model of this name" in logged
    assert said in logged


def test_a_peer_gone_inside_a_message_ends_the_connection(
    connect: Connect, capfd: pytest.CaptureFixture[str]
) -> None:
    client = connect()
    client.send(LOAD[:5])
    client.socket.shutdown(socket.SHUT_WR)
    assert client.ended()
    assert "ended inside a message" in capfd.readouterr().err


def test_a_peer_gone_between_messages_ends_the_connection_quietly(
    connect: Connect, capfd: pytest.CaptureFixture[str]
) -> None:
    client = connect()
    client.ask(LOAD)
    client.socket.shutdown(socket.SHUT_WR)
    assert client.ended()
    assert client.at_end()
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("function", "frame", "said"),
    [
        ("follow", otf.predict(b"(raise)"), "LookupError: asked of worker-1"),
        ("follow", otf.predict(b"(exit)"), "SystemExit: 3"),
        ("answers_none", LOAD, "a service that answers None has its interpreter retired, or"),
        ("answers_text", LOAD, "(bytes, keep the connection open), not a str"),
        ("no_such_function", LOAD, "no_such_function"),
    ],
    ids=["raises", "exits", "answers None", "answers text", "is not there"],
)
def test_a_function_that_fails_ends_its_connection_and_logs_why(
    connect: Connect,
    manager: InterpreterManager,
    capfd: pytest.CaptureFixture[str],
    function: str,
    frame: bytes,
    said: str,
) -> None:
    client = connect(function)
    client.send(frame)
    assert client.at_end()
    assert client.ended()
    logged = capfd.readouterr().err
    assert said in logged
    if said.startswith(("Lookup", "System")):
        assert "serving_guest.py" in logged  # the traceback
        assert logged.count(said) <= 2
    # Another connection does not notice.
    assert connect().ask(LOAD)["worker"] == "worker-1"


@pytest.mark.long
def test_connections_leave_no_descriptor_and_no_thread_behind() -> None:
    done = run_program("""
        import os, socket, struct
        import otf
        from interpool import InterpreterManager
        from serving_client import Client
        from waiting import wait_for

        def count():
            return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

        def round_of(ends):
            clients = [Client(manager, "follow") for _ in range(10)]
            for client in clients:
                client.send(otf.load())
                client.line()
                ends(client)
                client.close()

        ways = [
            lambda client: None,
            lambda client: client.socket.shutdown(socket.SHUT_RDWR),
            lambda client: client.send(b"garbage"),
            lambda client: client.send(otf.predict(b"(raise)")),
            lambda client: client.send(otf.predict(b"(end)")),
            lambda client: client.send(b"I" + struct.pack(">i", 100)),
            lambda client: client.connection.close(),
        ]
        with InterpreterManager(2) as manager:
            round_of(ways[0])
            before = count()
            for way in ways:
                round_of(way)
            wait_for(
                lambda: all(now <= then for now, then in zip(count(), before)),
                lambda: f"{before}, which are {count()}",
            )
            print("none is left")
        """)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "none is left\n"
