"""Tries to run a function in private interpreters, in child processes that may crash.

An ordinary Python computes the correct answer. Then two interpreters of a pool and the host program call the
function repeatedly, at once. This shows errors of shared state, or of a missing common GIL, which an import
does not show. A failure is tried again without the host, and in one interpreter, to find a remedy.

Run as a program, this module is the child process.
"""

from __future__ import annotations

import contextlib
import enum
import faulthandler
import sys
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from interpool.native.child_process import ChildError, Program, serve, start
from interpool.native.diagnostics.computation import WRONG, repeat
from interpool.native.diagnostics.doctor import Check
from interpool.native.diagnostics.import_trial import SHARED_STATE, STOCK_WORKERS, ending
from interpool.native.errors import InterpoolError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from interpool.native.pool.manager import InterpreterSession

_SECONDS = 120  # for each step of a trial, because a first call may compile
_START_SECONDS = 300  # the first start makes all private copies
_ROUNDS = 10
# Duration of the concurrent calls.
_AT_ONCE_SECONDS = 2.0


class Status(enum.StrEnum):
    """The result of a trial."""

    COMPUTES = "computes"
    HOST = "not beside the host"
    ONE = "one interpreter"
    NEVER = "not inside"
    UNSTEADY = "unsteady"
    BROKEN = "broken"
    MISSING = "missing"
    NO_POOL = "no pool"


@dataclass(frozen=True)
class Verdict:
    """The result for one function.

    Attributes:
        call: the function, as ``module:function``.
        status: where it computes correctly.
        failure: the failure elsewhere, or "".
        calls: the number of calls by two interpreters and the host together.
        seconds: the duration of these calls.
    """

    call: str
    status: Status
    failure: str = ""
    calls: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class _Trial:
    """A function, and where to call it.

    Attributes:
        call: the function.
        right: the correct answer; "" if unknown.
        interpreters: how many call it at once; 0 for no pool.
        host: whether the process itself calls it, too.
    """

    call: str
    right: str
    interpreters: int
    host: bool


@dataclass(frozen=True)
class _Outcome:
    """The result of a trial; the first result is that of its pool's start."""

    answer: str = ""
    failure: str = ""
    calls: int = 0
    seconds: float = 0.0
    pool: bool = True


_PROGRAM: Final = Program(__spec__.name, _Trial, _Outcome)


def try_call(call: str, seconds: float = _SECONDS) -> Verdict:
    """Determine whether ``module:function`` computes correctly in private interpreters.

    Args:
        call: a function without arguments whose answer has the same ``repr`` each time.
        seconds: the time limit of each step.
    """
    ordinary = _run(_Trial(call, "", 0, host=True), seconds)
    if ordinary.failure:
        if ordinary.failure.startswith(WRONG):
            return Verdict(call, Status.UNSTEADY, ordinary.failure)
        missing = ordinary.failure.startswith(("ModuleNotFoundError", "AttributeError: module"))
        return Verdict(call, Status.MISSING if missing else Status.BROKEN, ordinary.failure)
    both = _run(_Trial(call, ordinary.answer, 2, host=True), seconds)
    if not both.pool:
        return Verdict(call, Status.NO_POOL, both.failure)
    if not both.failure:
        return Verdict(call, Status.COMPUTES, "", both.calls, both.seconds)
    if both.failure.startswith(WRONG):
        # An address, or the order of a set, is constant only within a process.
        another = _run(_Trial(call, ordinary.answer, 0, host=True), seconds)
        if another.failure.startswith(WRONG):
            return Verdict(call, Status.UNSTEADY, another.failure)
    one = _run(_Trial(call, ordinary.answer, 1, host=False), seconds)
    if one.failure:
        # Report this failure: in a crash of two, one stack would be truncated.
        return Verdict(call, Status.NEVER, one.failure)
    two = _run(_Trial(call, ordinary.answer, 2, host=False), seconds)
    if two.failure:
        return Verdict(call, Status.ONE, two.failure)
    return Verdict(call, Status.HOST, both.failure)


def checks(calls: Sequence[str], seconds: float = _SECONDS) -> Iterator[Check]:
    """Try the functions one after the other; yields each result when it is known.

    Args:
        calls: functions, as ``module:function``.
        seconds: the time limit of each step.
    """
    for call in dict.fromkeys(calls):
        yield _judge(try_call(call, seconds))


def _judge(verdict: Verdict) -> Check:
    name = f"run {verdict.call}"
    failure = verdict.failure
    if verdict.status is Status.COMPUTES:
        detail = (
            f"the right answer from two interpreters and the host at once, {verdict.calls} calls in "
            f"{verdict.seconds:.1f} s"
        )
        return Check(name, True, detail)
    known = {
        Status.HOST: (
            f"{failure}; two interpreters compute it, unless the host program does so at the same time",
            "call it only in interpreters; a server's host does not use the libraries of models",
        ),
        Status.ONE: (
            f"{failure} with two interpreters; with one it computes: {SHARED_STATE}",
            f"use a pool of one interpreter, or {STOCK_WORKERS}",
        ),
        Status.NEVER: (f"{failure}; an ordinary Python computes it", STOCK_WORKERS),
        Status.UNSTEADY: (
            f"its answers differ in an ordinary Python, too: {failure}",
            "return a value with the same repr each time: without addresses, times or random numbers",
        ),
        Status.BROKEN: (
            f"it fails in an ordinary Python, too: {failure}",
            "fix that first; it has nothing to do with private interpreters",
        ),
        Status.MISSING: (
            f"an ordinary Python does not find it either: {failure}",
            f"install it for {sys.executable}, set PYTHONPATH to its folder, or correct the name",
        ),
        Status.NO_POOL: (f"no pool has started: {failure}", "interpool doctor"),
    }
    detail, hint = known[verdict.status]
    return Check(name, False, detail, hint)


def _run(trial: _Trial, seconds: float) -> _Outcome:
    with start(_PROGRAM, trial, capture_stderr=True) as child:
        pool = not trial.interpreters
        allowed = 0.0
        try:
            if trial.interpreters:
                allowed = _START_SECONDS
                started = child.result(allowed)
                if not started.pool:
                    return started
                pool = True
            allowed = seconds
            return child.result(allowed)
        except ChildError as error:
            return _Outcome(failure=ending(error, allowed), pool=pool)
        finally:
            child.kill()  # do not wait until its pool is closed


# ---- in the child process ---------------------------------------------------------------------


def _work(trial: _Trial) -> Iterator[_Outcome]:
    with contextlib.ExitStack() as stack:
        sessions: list[InterpreterSession] = []
        if trial.interpreters:
            from interpool.native.pool.manager import InterpreterManager

            try:
                manager = stack.enter_context(InterpreterManager(trial.interpreters))
                sessions = [stack.enter_context(manager.acquire_session()) for _ in range(trial.interpreters)]
            except InterpoolError as error:
                yield _Outcome(failure=str(error), pool=False)
                return
            for session in sessions:
                # After a crash each handler prints its own thread's stack, then calls the previous handler.
                session.global_("interpool.native.inside.process_guards", "report_crashes")(all_threads=False)
            yield _Outcome()
        else:
            faulthandler.enable(all_threads=False)
        yield _at_once(trial, sessions)


def _at_once(trial: _Trial, sessions: Sequence[InterpreterSession]) -> _Outcome:
    """Call the function once in each place, which imports its modules; then repeatedly, all at once."""
    callers: list[Callable[[str, str, int, float], list[str]]] = [_inside(session) for session in sessions]
    if trial.host:
        callers.append(repeat)
    barrier = threading.Barrier(len(callers))
    found: list[list[str]] = []
    began = ended = 0.0

    def work(caller: Callable[[str, str, int, float], list[str]]) -> None:
        nonlocal began, ended
        barrier.wait()
        first = caller(trial.call, trial.right, 1, 0.0)
        found.append(first)
        barrier.wait()
        if any(failure for _, _, failure in found):
            return
        began = time.monotonic()
        found.append(caller(trial.call, first[1], _ROUNDS, _AT_ONCE_SECONDS if sessions else 0.0))
        ended = time.monotonic()

    if len(callers) == 1 and trial.host:
        work(repeat)  # in the main thread, as in an ordinary program
    else:
        threads = [threading.Thread(target=work, args=(caller,)) for caller in callers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    failures = [failure for _, _, failure in found if failure]
    return _Outcome(
        answer=found[0][1],
        failure=failures[0] if failures else "",
        calls=sum(int(calls) for calls, _, _ in found),
        seconds=ended - began,
    )


def _inside(session: InterpreterSession) -> Callable[[str, str, int, float], list[str]]:
    def call(name: str, right: str, rounds: int, seconds: float) -> list[str]:
        try:
            return list(session.global_(repeat.__module__, "repeat")(name, right, rounds, seconds).to_value())
        except InterpoolError as error:
            return ["0", right, str(error)]

    return call


if __name__ == "__main__":
    serve(_PROGRAM, _work)
