"""A user's pybind11 extension: tensors, its own exceptions, static and thread_local state, what it prints."""

from __future__ import annotations

import importlib
import sysconfig
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from compile import build
from interpool_testing import Code, every_interpreter, together
from paths import EXTENSIONS
from waiting import wait_for

from interpool.native import InterpreterManager, InterpreterSession
from interpool.native.errors import RemoteError

pytestmark = pytest.mark.long

NAME = "bound_extension"


@pytest.fixture(scope="module")
def bound() -> Path:
    source = EXTENSIONS / "bound.cpp"
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    return build(source, NAME + suffix, with_torch=True, options=("-ltorch_python",))


@pytest.fixture
def sessions(manager: InterpreterManager, bound: Path) -> Iterator[list[InterpreterSession]]:
    with every_interpreter(manager) as leased:
        for session in leased:
            path = session.global_("sys", "path")
            if str(bound.parent) not in path.to_value():
                path.attr("append")(str(bound.parent))
        yield leased


def test_functions_of_tensors_compute_in_every_interpreter_at_once(
    sessions: list[InterpreterSession],
) -> None:
    def work(i: int, session: InterpreterSession) -> bool:
        scale, halves, apply = (session.global_(NAME, name) for name in ("scale", "halves", "apply"))
        double = session.global_("operator", "methodcaller")("mul", 2)
        x = torch.arange(6.0) + i
        for _ in range(50):
            assert torch.equal(scale(x, 3.0).to_value(), x * 3)
            assert [half.tolist() for half in halves(x).to_value()] == [x[:3].tolist(), x[3:].tolist()]
            assert torch.equal(apply(double, x).to_value(), x * 2)
        return True

    works = [lambda i=i, session=session: work(i, session) for i, session in enumerate(sessions)]  # type: ignore[misc]
    assert together(works) == [True] * len(sessions)


def test_operators_of_an_interpreter_compute_on_a_thread_that_its_extension_starts(
    sessions: list[InterpreterSession],
) -> None:
    source = """
import torch
library = torch.library.Library("interpool_on_a_thread", "FRAGMENT")
library.define("plus(Tensor x) -> Tensor")
library.impl("plus", lambda x: x + {number}, "CPU")
plus = torch.ops.interpool_on_a_thread.plus
"""

    def work(i: int, session: InterpreterSession) -> list[float]:
        operator = Code(session, source.format(number=i))
        apply = session.global_(NAME, "apply_on_a_thread")
        answers = {apply(operator["plus"], torch.zeros(1)).to_value().item() for _ in range(50)}
        return [*answers]

    works = [lambda i=i, session=session: work(i, session) for i, session in enumerate(sessions)]  # type: ignore[misc]
    assert together(works) == [[float(i)] for i in range(len(sessions))]


def test_the_host_has_static_state_and_operators_of_its_own_copy_too(
    sessions: list[InterpreterSession], bound: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = [session.global_(NAME, "count") for session in sessions]
    before = [count().to_value() for count in inside]
    monkeypatch.syspath_prepend(str(bound.parent))
    host = importlib.import_module(NAME)  # after the interpreters: they registered its operator
    first = host.count()
    assert [host.count() for _ in range(3)] == [first + 1, first + 2, first + 3]
    assert [count().to_value() for count in inside] == [count + 1 for count in before]
    with pytest.raises(RuntimeError, match="refused below the dispatcher"):
        torch.ops.interpool_bound.refuse(torch.ones(1))
    with pytest.raises(host.OwnError, match="of the host"):
        host.raise_own("of the host")


def test_an_exception_of_the_extensions_own_crosses_with_its_message(
    sessions: list[InterpreterSession],
) -> None:
    def work(i: int, session: InterpreterSession) -> tuple[str, str]:
        with pytest.raises(RemoteError) as caught:
            session.global_(NAME, "raise_own")(f"of interpreter {i}: ä")
        assert "OwnError" in caught.value.traceback
        return caught.value.type_name, caught.value.message

    works = [lambda i=i, session=session: work(i, session) for i, session in enumerate(sessions)]  # type: ignore[misc]
    assert together(works) == [(f"{NAME}.OwnError", f"of interpreter {i}: ä") for i in range(len(sessions))]


def test_exceptions_are_caught_by_type_inside_python_and_inside_the_extension(
    sessions: list[InterpreterSession],
) -> None:
    source = f"""
import {NAME}
try:
    {NAME}.raise_own("said")
except {NAME}.OwnError as error:
    caught = (str(error), isinstance(error, LookupError), type(error).__module__)
"""
    for session in sessions:
        names = session.global_("builtins", "dict")()
        session.global_("builtins", "exec")(source, names)
        assert names.attr("get")("caught").to_value() == ("said", True, NAME)
        assert session.global_(NAME, "catches_own")("thrown and caught").to_value() is True


def test_thread_local_objects_are_each_interpreters_and_each_threads_own(
    sessions: list[InterpreterSession],
) -> None:
    visits = [session.global_(NAME, "visit") for session in sessions]

    def visit(times: int) -> list[list[int]]:
        return [[visit().to_value() for visit in visits] for _ in range(times)]

    here = []
    for _ in range(2):
        thread = threading.Thread(target=lambda: here.append(visit(2)))
        thread.start()
        thread.join()
    assert here == [[[1] * len(visits), [2] * len(visits)]] * 2


def test_thread_local_objects_are_destroyed_when_their_thread_ends(
    sessions: list[InterpreterSession],
) -> None:
    source = f"""
import threading, {NAME}
def on_threads(count):
    threads = [threading.Thread(target={NAME}.visit) for _ in range(count)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
"""
    ended = [session.global_(NAME, "threads_ended") for session in sessions]
    before = [count().to_value() for count in ended]
    # Python's threads inside: one more in each interpreter than in the one before.
    for i, session in enumerate(sessions):
        names = session.global_("builtins", "dict")()
        session.global_("builtins", "exec")(source, names)
        names.attr("get")("on_threads")(i + 1)
    # And the caller's, of which each visits all.
    visits = [session.global_(NAME, "visit") for session in sessions]
    together([lambda: [visit() for visit in visits]] * 3)
    wanted = [count + i + 1 + 3 for i, count in enumerate(before)]
    wait_for(lambda: [count().to_value() for count in ended] == wanted, "the objects to be destroyed")
