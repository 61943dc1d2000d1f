"""Interpreters apart from one another, and what a session and its objects allow."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor

import pytest
from interpool_testing import Code, every_interpreter, together
from waiting import wait_for

from interpool.native import InterpreterManager, InterpreterSession
from interpool.native.errors import (
    SessionClosedError,
    WrongInterpreterError,
)


def test_each_interpreter_has_its_own_none_and_its_own_number(manager: InterpreterManager) -> None:
    with every_interpreter(manager) as sessions:
        nones = {session.global_("builtins", "id")(None).to_value() for session in sessions}
        assert len(nones | {id(None)}) == len(sessions) + 1
        numbers = [session.interpreter_id for session in sessions]
        assert len(set(numbers)) == len(sessions)
        assert [
            session.global_("interpool.native.inside", "interpreter_id")().to_value() for session in sessions
        ] == numbers


def test_the_host_is_no_interpreter_of_a_pool() -> None:
    from interpool.native.inside import interpreter_id

    assert interpreter_id() is None


def test_two_interpreters_run_python_at_the_same_time(manager: InterpreterManager) -> None:
    # Neither loop ever releases its GIL; with one GIL for both, the second would not begin.
    source = """
    import ctypes, sys, time

    def meet(address, me):
        sys.setswitchinterval(1000)
        try:
            board = (ctypes.c_int64 * 2).from_address(address)
            board[me] = 1
            end = time.monotonic() + 20
            while time.monotonic() < end:
                if board[0] and board[1]:
                    return True
            return False
        finally:
            sys.setswitchinterval(0.005)
    """
    board = (ctypes.c_int64 * 2)()
    address = ctypes.addressof(board)
    with every_interpreter(manager, 2) as (one, other):
        first, second = Code(one, source)["meet"], Code(other, source)["meet"]
        met = together([lambda: first(address, 0).to_value(), lambda: second(address, 1).to_value()])
    assert met == [True, True]


def test_a_global_is_found_called_and_looked_into(session: InterpreterSession) -> None:
    fraction = session.global_("fractions", "Fraction")(6, 4)
    assert fraction.attr("numerator").to_value() == 3
    assert fraction.attr("limit_denominator")(max_denominator=1).attr("denominator").to_value() == 1
    assert fraction.interpreter_id == session.interpreter_id


def test_positional_and_keyword_arguments_arrive_as_given(session: InterpreterSession) -> None:
    function = Code(session, "def f(*args, **kwargs): return args, kwargs")["f"]
    assert function().to_value() == ((), {})
    assert function(1, "two", z=[3], ä=None).to_value() == ((1, "two"), {"z": [3], "ä": None})


def test_objects_of_a_session_are_arguments_in_it(session: InterpreterSession) -> None:
    fraction = session.global_("fractions", "Fraction")
    half = fraction(1, 2)
    total = session.global_("operator", "add")(half, fraction(1, 3))
    assert session.global_("builtins", "str")(object=total).to_value() == "5/6"


def test_objects_that_an_iterator_gives_live_for_the_call(session: InterpreterSession) -> None:
    concat = session.global_("operator", "concat")
    for _ in range(50):  # what is left of an object that is gone may pass for it
        assert concat.call_kwargs((session.from_value([n]) for n in (1, 2)), {}).to_value() == [1, 2]


def test_an_object_of_one_interpreter_is_refused_in_another(manager: InterpreterManager) -> None:
    with every_interpreter(manager, 2) as (one, other):
        stranger = other.from_value("stranger")
        length = one.global_("builtins", "len")
        refusal = f"interpreter {other.interpreter_id} was used in interpreter {one.interpreter_id}"
        with pytest.raises(WrongInterpreterError, match=refusal):
            length(stranger)
        with pytest.raises(WrongInterpreterError, match=refusal):
            one.global_("builtins", "dict")(key=stranger)
        assert length("abc").to_value() == 3
        assert stranger.to_value() == "stranger"


def test_nothing_works_after_the_session_closed(manager: InterpreterManager) -> None:
    session = manager.acquire_session(timeout=60)
    value = session.from_value([1])
    session.close()
    session.close()  # again does no harm
    assert not session.is_open
    for use in (
        value.to_value,
        value,
        lambda: value.attr("append"),
        lambda: session.global_("os", "getpid"),
        lambda: session.from_value(1),
    ):
        with pytest.raises(SessionClosedError, match="session of this object has ended"):
            use()


def test_an_object_of_a_closed_session_is_refused_as_an_argument(manager: InterpreterManager) -> None:
    with manager.acquire_session(timeout=60) as session:
        old = session.from_value([1])
    with every_interpreter(manager) as sessions:
        for session in sessions:
            with pytest.raises(SessionClosedError):
                session.global_("builtins", "len")(old)


def test_an_argument_of_a_session_that_closes_while_a_call_waits_is_refused() -> None:
    with InterpreterManager(1) as manager:
        with manager.acquire_session(timeout=60) as session:
            length = manager.create_movable(session.global_("builtins", "len"))
        with manager.acquire_session(timeout=60) as session, ThreadPoolExecutor(1) as pool:
            argument = session.from_value(list(range(1000)))
            waiting = pool.submit(length, argument)
            wait_for(lambda: manager.stats()["waiting"] == 1, "the call to wait")
            session.close()
            with pytest.raises(SessionClosedError, match="session of this object has ended"):
                waiting.result(timeout=60)


def test_a_session_ends_with_its_with_block_even_when_that_raises(manager: InterpreterManager) -> None:
    with pytest.raises(ZeroDivisionError), manager.acquire_session(timeout=60) as session:
        raise ZeroDivisionError
    assert not session.is_open


def test_dropped_objects_die_within_their_session(session: InterpreterSession) -> None:
    code = Code(
        session,
        """
        import gc, weakref
        class Thing: pass
        def make():
            global watched
            thing = Thing()
            watched = weakref.ref(thing)
            return thing
        def alive(): return watched() is not None
        """,
    )
    thing = code["make"]()
    assert code.call("alive") is True
    del thing
    assert code.call("alive") is False


def test_a_session_may_move_from_thread_to_thread(session: InterpreterSession) -> None:
    counter = Code(session, "import itertools; next_number = itertools.count().__next__")["next_number"]
    numbers = []
    for _ in range(3):
        numbers += together([lambda: counter().to_value()])
    assert numbers == [0, 1, 2]
