"""Served calls that are ended from outside."""

from __future__ import annotations

import otf
from interpool_testing import Gate, pool_of
from serving_client import Client
from waiting import wait_for

from interpool.native import InterpreterManager

# A pool of its own: some calls cost an interpreter.
manager = pool_of(2)


def _state(manager: InterpreterManager, state: str) -> int:
    return sum(one["state"] == state for one in manager.stats()["interpreters"])


def _call(client: Client, words: bytes) -> None:
    """Begin a call, and wait until it runs."""
    client.send(otf.predict(words))
    wait_for(lambda: client.connection.running is not None, "the call to begin")


def _interrupt(client: Client, function: str = "") -> None:
    """Interrupt its call, again and again until it is in that function then."""

    def is_interrupted() -> bool:
        client.connection.interrupt()
        where = client.connection.where
        return where != "" and function in where

    wait_for(is_interrupted, "the call's stack")


def test_without_a_call_there_is_nothing_to_end(manager: InterpreterManager) -> None:
    client = Client(manager)
    client.ask(otf.load())
    assert client.connection.running is None
    assert client.connection.requests == []
    assert client.connection.interrupt() is False
    assert client.connection.give_up() is None
    assert client.ask(otf.load())["worker"] == "worker-1"
    client.close()


def test_code_of_a_model_is_interrupted_and_the_connection_goes_on(manager: InterpreterManager) -> None:
    client = Client(manager, "interruptible")
    _call(client, b"(loop)")
    assert client.connection.requests == ["request-0"]
    wait_for(lambda: "loop_for_ever" in manager.dump_stacks(), "the loop")
    _interrupt(client)
    assert "loop_for_ever" in client.connection.where
    assert client.line() == b"interrupted\n"
    # A delayed interruption hits no later call.
    client.send(otf.predict(b"(count)"))
    assert client.line() == b"counted\n"
    client.close()
    assert _state(manager, "retired") == 0


def test_code_that_serves_a_model_is_not_interrupted(manager: InterpreterManager) -> None:
    client = Client(manager, "interruptible")
    with Gate() as gate:
        _call(client, b"(wait for %d, then count)" % gate.fd)
        _interrupt(client)
    # It was asked for under the shield, and hits the model's code that comes then.
    assert client.line() == b"interrupted\n"
    client.close()


def test_code_that_serves_a_model_is_not_interrupted_by_an_earlier_calls_interruption(
    manager: InterpreterManager,
) -> None:
    client = Client(manager, "goes_on")
    with Gate() as first, Gate() as second:
        _call(client, b"(wait for %d)(wait for %d)" % (first.fd, second.fd))
        _interrupt(client)
        first.open()
        assert client.line() == b"interrupted\n"
        _interrupt(client, "wait_again")
    assert client.line() == b"whole\n"
    client.close()


def test_a_call_that_is_given_up_costs_only_its_interpreter(
    manager: InterpreterManager,
) -> None:
    client, other = Client(manager, "follow"), Client(manager)
    with Gate() as gate:
        _call(client, b"(wait for %d)" % gate.fd)
        given_up = client.connection.give_up()
        assert given_up is not None
        assert client.at_end()
        assert client.connection.running is None
        assert client.connection.give_up() is None
        assert other.ask(otf.load())["interpreter"] != given_up
        wait_for(lambda: _state(manager, "free") == 2, "another interpreter in its place")
        assert _state(manager, "retired") == 1
        assert not client.ended(timeout=0)
    assert client.ended()  # the call has come back after all
    wait_for(lambda: _state(manager, "free") == 2, "the pool to be as it was")
    for each in (client, other):
        each.close()


def test_a_message_that_waited_for_an_interpreter_is_dropped_with_its_connection(
    manager: InterpreterManager,
) -> None:
    busy = [Client(manager, "follow", affinity="busy") for _ in range(2)]
    late = Client(manager, "follow", affinity="late")
    with Gate() as gate, Gate() as unread:
        for client in busy:
            _call(client, b"(wait for %d)" % gate.fd)
        late.send(otf.predict(b"(wait for %d)" % unread.fd))  # would not come back
        wait_for(lambda: manager.stats()["waiting"] == 1, "the message to wait")
        late.connection.close()
        gate.open()
        assert late.ended()
    for client in (*busy, late):
        client.close()


def test_a_call_that_holds_its_gil_is_given_up_too(manager: InterpreterManager) -> None:
    client, other = Client(manager, "follow"), Client(manager)
    before = _state(manager, "retired")
    with Gate() as gate:
        _call(client, b"(hold the GIL for %d)" % gate.fd)
        assert client.connection.interrupt()
        assert client.connection.give_up() is not None
        assert client.connection.where == ""
        assert other.ask(otf.load())["worker"] == "worker-1"
        wait_for(lambda: _state(manager, "free") == 2, "another interpreter in its place")
    assert _state(manager, "retired") == before + 1
    for each in (client, other):
        each.close()
