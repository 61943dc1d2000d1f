"""Tries to import modules into private interpreters, in child processes that may crash.

Correct computation is a separate question: ``run_trial.py`` answers it for a function.

Two interpreters of a pool import a module at once, as in a server. A failure is compared with an ordinary
Python and with a pool of one, to find its cause.

Run as a program, this module is the child process. Its first result says whether its pool has started; one
for each name follows.
"""

from __future__ import annotations

import contextlib
import importlib
import re
import sys
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from interpool.native.child_process import ChildError, Program, explained, serve, start
from interpool.native.diagnostics.doctor import Check
from interpool.native.errors import InterpoolError, RemoteError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from interpool.native.pool.manager import InterpreterSession

_SECONDS = 120
_START_SECONDS = 300  # the first start makes all private copies

STOCK_WORKERS = (
    "serve the models that need it by TorchServe's stock workers (an archive that is not hermetic), "
    "and report this line to interpool"
)
COMPUTES = "`interpool doctor --run module:function` says whether it computes there"
SHARED_STATE = "it has state that all interpreters of a process share"


@dataclass(frozen=True)
class _Trial:
    """Names to import, in this order, and into how many interpreters at once; 0 for an ordinary Python."""

    interpreters: int
    names: list[str]


@dataclass(frozen=True)
class _Outcome:
    """The result of one import.

    Attributes:
        failure: why it failed, or "".
        seconds: its duration.
        not_found: whether there is no such module.
        pool: whether the pool has started.
    """

    failure: str = ""
    seconds: float = 0.0
    not_found: bool = False
    pool: bool = True


_PROGRAM: Final = Program(__spec__.name, _Trial, _Outcome)


def checks(names: Sequence[str], seconds: float = _SECONDS) -> Iterator[Check]:
    """Try the imports one after the other; yields each result when it is known.

    Args:
        names: of modules, with or without dots.
        seconds: the time limit of each import.
    """
    left = list(dict.fromkeys(names))
    while left:
        # One process for all, as in a worker; a new one after a failure.
        for outcome in _try(left, 2, seconds):
            if not outcome.pool:
                yield Check("private interpreters", False, outcome.failure, "interpool doctor")
                return
            yield _judge(left.pop(0), outcome, seconds)
            if outcome.failure:
                break


def _judge(name: str, outcome: _Outcome, seconds: float) -> Check:
    what = f"import {name}"
    if not outcome.failure:
        detail = f"into two interpreters at once, {outcome.seconds:.1f} s; {COMPUTES}"
        return Check(name, True, detail, word="imports")
    ordinary = _ordinary(name, seconds)
    if ordinary.not_found:
        detail = f"an ordinary Python does not find it either: {ordinary.failure}"
        return Check(what, False, detail, f"install it for {sys.executable}, or correct the name")
    if ordinary.failure:
        detail = f"it fails in an ordinary Python, too: {ordinary.failure}"
        return Check(what, False, detail, "fix that first; it has nothing to do with private interpreters")
    alone = next(_try([name], 1, seconds))
    if not alone.failure:
        detail = f"{outcome.failure} with two interpreters; with one it works: {SHARED_STATE}"
        return Check(what, False, detail, f"use a pool of one interpreter, or {STOCK_WORKERS}")
    # Report this failure: in a crash of two, one stack would be truncated.
    return Check(what, False, f"{alone.failure}; an ordinary Python imports it", STOCK_WORKERS)


def _ordinary(name: str, seconds: float) -> _Outcome:
    """Import the module without any pool."""
    with start(_PROGRAM, _Trial(0, [name]), capture_stderr=True) as child:
        try:
            return child.result(seconds)
        except ChildError as error:
            return _Outcome(ending(error, seconds))
        finally:
            child.kill()  # skip the module's exit functions, which are not tested


def _try(names: Sequence[str], interpreters: int, seconds: float) -> Iterator[_Outcome]:
    """Yield the results of ``names`` in turn, from one process. The last may describe its end."""
    with start(_PROGRAM, _Trial(interpreters, [*names]), capture_stderr=True) as child:
        for i in range(1 + len(names)):
            allowed = seconds if i else _START_SECONDS
            try:
                outcome = child.result(allowed)
            except ChildError as error:
                yield _Outcome(ending(error, allowed), pool=i > 0)
                return
            if i > 0 or not outcome.pool:
                yield outcome
        child.kill()  # do not wait until its pool is closed


def ending(error: ChildError, allowed: float) -> str:
    """Return why the process gave no result, from its status and stderr.

    Args:
        error: of the child process.
        allowed: its time limit in seconds.
    """
    if error.returncode is None:
        return f"it was not done after {allowed:.0f} s"
    if not error.signal:
        last = (error.stderr.strip().splitlines() or ["nothing was said"])[-1]
        return f"the process ended with exit status {error.returncode} ({last})"
    why = f"it crashed with {explained(error.signal)}"
    thrown = re.search(r"^\s*what\(\):\s*(.+)", error.stderr, re.MULTILINE)
    at = re.search(r'^  File "(?!<frozen)(.+)", line (\d+) in (.+)', error.stderr, re.MULTILINE)
    if thrown:
        why += f": {thrown[1]}"
    return f"{why}, at {at[1]}:{at[2]} in {at[3]}" if at else why


# ---- in the child process ---------------------------------------------------------------------


def _import_all(trial: _Trial) -> Iterator[_Outcome]:
    if trial.interpreters:
        yield from _into_a_pool(trial)
    else:
        yield from map(_into_this_python, trial.names)


def _into_this_python(name: str) -> _Outcome:
    try:
        importlib.import_module(name)
    except (Exception, SystemExit) as error:  # noqa: BLE001 (the module may raise any exception)
        failure = f"{type(error).__name__}: {error}"
        return _Outcome(failure, not_found=isinstance(error, ModuleNotFoundError))
    return _Outcome()


def _into_a_pool(trial: _Trial) -> Iterator[_Outcome]:
    from interpool.native.pool.manager import InterpreterManager

    with contextlib.ExitStack() as stack:
        try:
            manager = stack.enter_context(InterpreterManager(trial.interpreters))
            sessions = [stack.enter_context(manager.acquire_session()) for _ in range(trial.interpreters)]
        except InterpoolError as error:
            yield _Outcome(str(error), pool=False)
            return
        for session in sessions:
            # After a crash each handler prints its own thread's stack, then calls the previous handler.
            session.global_("interpool.native.inside.process_guards", "report_crashes")(all_threads=False)
        yield _Outcome()
        for name in trial.names:
            yield _at_once(sessions, name)


def _at_once(sessions: Sequence[InterpreterSession], name: str) -> _Outcome:
    barrier = threading.Barrier(len(sessions))
    failures: list[str] = []

    def work(session: InterpreterSession) -> None:
        barrier.wait()
        try:
            session.global_("importlib", "import_module")(name)
        except RemoteError as error:
            failures.append(f"{error.type_name}: {error.message}")
        except InterpoolError as error:
            failures.append(str(error))

    threads = [threading.Thread(target=work, args=(session,)) for session in sessions]
    started = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return _Outcome(failures[0] if failures else "", time.monotonic() - started)


if __name__ == "__main__":
    serve(_PROGRAM, _import_all)
