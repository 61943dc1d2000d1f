"""Does a function compute in private interpreters? Tried, in processes that may crash.

An ordinary Python says what is right. Then two interpreters of a pool and the host program call it
at once, again and again: what a module shares between them, or takes from a GIL that is no longer
around it, shows when it works, and not when it is imported. What goes wrong is tried again without
the host, and in one interpreter, to say what may be done.

Run as a program, this module is the process that tries.
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
from interpool.native.diagnostics.computation import repeat
from interpool.native.diagnostics.doctor import Check
from interpool.native.diagnostics.import_trial import SHARED_STATE, STOCK_WORKERS, ending
from interpool.native.errors import InterpoolError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from interpool.native.pool.manager import InterpreterSession

_SECONDS = 120  # for each step of a trial: a first call may compile
_START_SECONDS = 300  # a first start makes all private copies
_ROUNDS = 10
# How long they call it at once.
_AT_ONCE_SECONDS = 2.0


class Status(enum.StrEnum):
    """What a trial found out."""

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
    """What became of one function.

    Attributes:
        call: it, as ``module:function``.
        status: where it computes.
        failure: what went wrong where it does not, or "".
        calls: how often two interpreters and the host have called it, together.
        seconds: how long they did.
    """

    call: str
    status: Status
    failure: str = ""
    calls: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class _Trial:
    """A function, and where it is to be called: in so many interpreters at once; in the host, too.

    Attributes:
        call: the function.
        right: its answer; "" where that is the question.
        interpreters: 0: no pool is started.
        host: whether the process itself calls it.
    """

    call: str
    right: str
    interpreters: int
    host: bool


@dataclass(frozen=True)
class _Outcome:
    """What became of a trial, or, as the first result, of its pool's start."""

    answer: str = ""
    failure: str = ""
    calls: int = 0
    seconds: float = 0.0
    pool: bool = True


_PROGRAM: Final = Program(__spec__.name, _Trial, _Outcome)


def try_call(call: str, seconds: float = _SECONDS) -> Verdict:
    """Whether ``module:function`` computes in private interpreters.

    Args:
        call: a function without arguments, whose answer looks the same (``repr``) each time.
        seconds: how long each step may take.
    """
    ordinary = _run(_Trial(call, "", 0, host=True), seconds)
    if ordinary.failure:
        if ordinary.failure.startswith("a wrong answer"):
            return Verdict(call, Status.UNSTEADY, ordinary.failure)
        missing = ordinary.failure.startswith(("ModuleNotFoundError", "AttributeError: module"))
        return Verdict(call, Status.MISSING if missing else Status.BROKEN, ordinary.failure)
    both = _run(_Trial(call, ordinary.answer, 2, host=True), seconds)
    if not both.pool:
        return Verdict(call, Status.NO_POOL, both.failure)
    if not both.failure:
        return Verdict(call, Status.COMPUTES, "", both.calls, both.seconds)
    one = _run(_Trial(call, ordinary.answer, 1, host=False), seconds)
    if one.failure:
        # The stack of one that crashes alone is not cut short by another's crash.
        return Verdict(call, Status.NEVER, one.failure)
    two = _run(_Trial(call, ordinary.answer, 2, host=False), seconds)
    if two.failure:
        return Verdict(call, Status.ONE, two.failure)
    return Verdict(call, Status.HOST, both.failure)


def checks(calls: Sequence[str], seconds: float = _SECONDS) -> Iterator[Check]:
    """Try one function after the other; yields each answer when it is found."""
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
            "leave it to the interpreters; a server's host uses no model's libraries",
        ),
        Status.ONE: (
            f"{failure} with two interpreters; with one it computes: {SHARED_STATE}",
            f"use a pool of one interpreter, or {STOCK_WORKERS}",
        ),
        Status.NEVER: (f"{failure}; an ordinary Python computes it", STOCK_WORKERS),
        Status.UNSTEADY: (
            f"its answers differ in an ordinary Python, too: {failure}",
            "let it return what looks the same (repr) each time: no addresses, no times, no chance",
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
            child.kill()  # rather than wait until its pool is closed


# ---- in the process that tries ----------------------------------------------------------------


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
                # After a crash each tells its own thread's stack, then hands on to the one before.
                session.global_("interpool.native.inside.process_guards", "report_crashes")(all_threads=False)
            yield _Outcome()
        else:
            faulthandler.enable(all_threads=False)
        yield _at_once(trial, sessions)


def _at_once(trial: _Trial, sessions: Sequence[InterpreterSession]) -> _Outcome:
    """All call it once, importing what it needs; then, when all have done so, again and again."""
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
        work(repeat)  # on the main thread, as anywhere
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
