"""The pool as a whole: its interpreters one by one, its limit, modules given as source; sessions."""

from __future__ import annotations

from typing import Any

import pytest
from interpool_testing import Code, every_interpreter, together

from interpool.native import InterpreterManager, InterpreterSession
from interpool.native.errors import LeaseTimeoutError, RemoteError, SessionClosedError, SessionError


def test_two_sessions_of_one_interpreter_come_one_after_the_other(manager: InterpreterManager) -> None:
    one = manager.all_instances()[0]
    with one.acquire_session(timeout=60):
        with pytest.raises(LeaseTimeoutError):
            one.acquire_session(timeout=0.05)
        with manager.acquire_session(timeout=60) as other:  # the others are free
            assert other.interpreter_id != one.interpreter_id
    with one.acquire_session(timeout=60) as again:
        assert again.interpreter_id == one.interpreter_id


def test_waiting_for_one_interpreter_does_not_delay_the_others(manager: InterpreterManager) -> None:
    one = manager.all_instances()[0]
    held = one.acquire_session(timeout=60)

    def wait() -> int:
        with one.acquire_session(timeout=60) as session:
            return session.interpreter_id

    def work() -> int:
        try:
            for _ in range(20):
                with manager.acquire_session(timeout=60):
                    pass
            return 20
        finally:
            held.close()

    assert together([wait, work]) == [one.interpreter_id, 20]


def test_a_limited_pool_leases_its_first_interpreters_only(manager: InterpreterManager) -> None:
    first = {instance.interpreter_id for instance in manager.all_instances()[:2]}
    manager.limit(2)
    try:
        with every_interpreter(manager, 2) as sessions:
            assert {session.interpreter_id for session in sessions} == first
            with pytest.raises(LeaseTimeoutError):
                manager.acquire_session(timeout=0.05)
        for count in (0, len(manager) + 1):
            with pytest.raises(ValueError, match=f"can be limited to 1 to {len(manager)}, not {count}"):
                manager.limit(count)
    finally:
        manager.limit(len(manager))
    with every_interpreter(manager) as sessions:
        assert len({session.interpreter_id for session in sessions}) == len(manager)


def test_a_module_given_as_source_is_importable_in_every_interpreter(manager: InterpreterManager) -> None:
    manager.register_module_source("given_package", "NAME = __name__\n")
    manager.register_module_source(
        "given_package.part", "from . import NAME\n\ndef double(x):\n    return NAME, 2 * x\n"
    )
    with every_interpreter(manager) as sessions:
        for session in sessions:
            double = session.global_("given_package.part", "double")
            assert double(21).to_value() == ("given_package", 42)
            with pytest.raises(ModuleNotFoundError):
                __import__("given_package")
            with pytest.raises(RemoteError, match="TypeError") as caught:
                double(None)
            place = 'File "<registered source>/given_package.part.py", line 4, in double'
            assert place in caught.value.traceback
            assert "return NAME, 2 * x" in caught.value.traceback
            with pytest.raises(RemoteError, match="ModuleNotFoundError"):
                session.global_("given_package.nothing", "x")


def test_objects_are_asked_for_attributes_and_items(session: InterpreterSession) -> None:
    text = session.from_value("ab")
    assert text.has_attr("upper")
    assert not text.has_attr("no_such_method")
    assert text.attr("upper").call().to_value() == "AB"
    table = session.from_value({"a": [1, 2, 3], 7: None})
    assert table["a"].item(-1).to_value() == 3
    assert table[7].to_value() is None
    assert table["a"][session.global_("builtins", "slice")(0, 2)].to_value() == [1, 2]
    with pytest.raises(RemoteError, match="KeyError"):
        table["b"]
    with pytest.raises(RemoteError, match="ValueError: not telling"):
        Code(
            session,
            """
            class Silent:
                @property
                def x(self):
                    raise ValueError("not telling")

            silent = Silent()
            """,
        )["silent"].has_attr("x")


def test_keyword_arguments_come_from_a_dict(session: InterpreterSession) -> None:
    make = session.global_("builtins", "dict")
    assert make.call_kwargs([[("a", 1)]], {"b": 2}).to_value() == {"a": 1, "b": 2}
    with pytest.raises(TypeError, match="the names of keyword arguments are str"):
        make.call_kwargs([], {1: 2})


def test_keyword_arguments_may_change_while_they_are_read(session: InterpreterSession) -> None:
    class Clears(dict[str, int]):
        def items(self) -> Any:
            named.clear()
            return [("z" * length, length) for length in range(1000)]

    named: dict[str, Any] = {"".join(["a"] * 40): Clears(a=1)}
    made = session.global_("builtins", "dict").call_kwargs((), named).to_value()
    assert list(made) == ["a" * 40]
    assert len(made["a" * 40]) == 1000


def test_a_session_owns_its_objects_and_no_others(manager: InterpreterManager) -> None:
    with every_interpreter(manager, 2) as (one, other):
        value = one.from_value([1])
        assert one.is_owner(value)
        assert not other.is_owner(value)
    assert one.is_owner(value)  # whose it was does not change
    with pytest.raises(SessionClosedError):
        value.to_value()


def test_a_session_that_was_acquired_for_nothing_has_no_self(session: InterpreterSession) -> None:
    with pytest.raises(SessionError, match="acquired for no object"):
        _ = session.self
