"""A served model has one thread in each interpreter: what its load binds to a thread, its calls find."""

from __future__ import annotations

import otf
from interpool_testing import pool_of
from serving_client import Client, Connect

from interpool.native import InterpreterManager

# One interpreter, so that every connection is answered there.
manager = pool_of(1)


def _number(manager: InterpreterManager, model: str) -> int:
    """Of the thread that runs a session's calls."""
    with manager.acquire_session(affinity=model, call_limit=600) as session:
        number = session.global_("serving_guest", "thread_number")().to_value()
        assert isinstance(number, int)
        return number


def test_calls_of_one_connection_use_what_anothers_load_has_bound_to_its_thread(connect: Connect) -> None:
    first = connect("bound_to_thread", worker="one", affinity="/bound")
    made = first.ask(otf.load("bound"))
    assert (made["local"], made["precision"], made["numpy"]) == ("one", 5, "raise")
    second = connect("bound_to_thread", worker="two", affinity="/bound")
    assert second.ask(otf.load("bound")) == made
    first.connection.close()
    assert first.ended()
    assert second.ask(otf.predict(b"x")) == made


def test_no_other_model_of_the_interpreter_finds_it(connect: Connect) -> None:
    """A precision that one model sets would be another one's wrong answer."""
    connect("bound_to_thread", affinity="/sets").ask(otf.load("sets"))
    found = connect("thread_state", affinity="/does not").ask(otf.load("does not"))
    assert found == {"precision": 28, "numpy": "warn"}


def test_a_load_ahead_runs_on_the_thread_that_serves(manager: InterpreterManager, connect: Connect) -> None:
    """As sessions with a call limit do, one after another."""
    number = _number(manager, "/ahead")
    assert _number(manager, "/ahead") == number
    assert _number(manager, "/another") != number
    connect("bound_to_thread", affinity="/ahead").ask(otf.load("ahead"))
    assert _number(manager, "/ahead") == number


def test_a_model_that_is_forgotten_has_another_thread_when_it_comes_back(
    manager: InterpreterManager, connect: Connect
) -> None:
    client = connect("thread_state", affinity="/gone")
    connect("bound_to_thread", affinity="/gone").ask(otf.load("gone"))
    assert client.ask(otf.load("x"))["precision"] == 5
    manager.forget("/gone")
    assert client.ask(otf.predict(b"x"))["precision"] == 28


def test_pinned_connections_have_threads_of_their_own(manager: InterpreterManager) -> None:
    """Their workers have states of their own."""
    clients = [Client(manager, "bound_to_thread", worker=w, affinity="/own", pinned=True) for w in ("1", "2")]
    try:
        assert [c.ask(otf.load("own", str(i)))["local"] for i, c in enumerate(clients)] == ["1", "2"]
        assert [c.ask(otf.predict(b"x"))["local"] for c in clients] == ["1", "2"]
    finally:
        for client in clients:
            client.close()
