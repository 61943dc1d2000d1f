"""Can a module be imported into private interpreters? Tried, in processes that may crash.

Two interpreters of a pool import it at once, as they would while they serve. What then
goes wrong is compared with an ordinary Python, and with a pool of one, to say why.

Run as a program, this file is the process that tries: ``FD INTERPRETERS NAME...``. It
writes a line of JSON to the descriptor when its pool has started, and one for each name
that it has done with.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from interpool.native.diagnostics.doctor import Check

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_SECONDS = 120
_START_SECONDS = 300  # a first start makes all private copies

_STOCK = (
    "serve the models that need it by TorchServe's stock workers (an archive that is not hermetic), "
    "and report this line to interpool"
)


@dataclass(frozen=True)
class _Outcome:
    """What became of one import; ``failure`` is empty where it went well."""

    failure: str = ""
    seconds: float = 0.0
    pool: bool = True  # whether the pool started at all


def checks(names: Sequence[str], seconds: float = _SECONDS) -> Iterator[Check]:
    """Try one import after the other; yields each answer when it is found.

    Args:
        names: of modules, dotted or not.
        seconds: how long one of them may take.
    """
    left = list(dict.fromkeys(names))
    while left:
        # One process for all, as in a worker; after a failure a fresh one.
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
        return Check(what, True, f"two interpreters at once, {outcome.seconds:.1f} s")
    ordinary = _ordinary(name, seconds)
    if ordinary.startswith("ModuleNotFoundError"):
        detail = f"an ordinary Python does not find it either: {ordinary}"
        return Check(what, False, detail, f"install it for {sys.executable}, or correct the name")
    if ordinary:
        detail = f"it fails in an ordinary Python, too: {ordinary}"
        return Check(what, False, detail, "fix that first; it has nothing to do with private interpreters")
    alone = next(_try([name], 1, seconds))
    if not alone.failure:
        detail = (
            f"{outcome.failure} with two interpreters; with one it works: it has state that is one for "
            "the whole process"
        )
        return Check(what, False, detail, f"use a pool of one interpreter, or {_STOCK}")
    # The stack of one that crashes alone is not cut short by the other's crash.
    return Check(what, False, f"{alone.failure}; an ordinary Python imports it", _STOCK)


def _ordinary(name: str, seconds: float) -> str:
    """How the import fails without any pool; empty where it does not."""
    command = [
        sys.executable,
        "-P",
        "-c",
        "import importlib, sys; importlib.import_module(sys.argv[1])",
        name,
    ]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it took more than {seconds:.0f} s"
    if done.returncode < 0:
        return f"it crashed with {_signal(done.returncode)}"
    lines = done.stderr.strip().splitlines()
    return (lines[-1] if lines else f"exit status {done.returncode}") if done.returncode else ""


def _try(names: Sequence[str], interpreters: int, seconds: float) -> Iterator[_Outcome]:
    """Outcomes of ``names`` in turn, in one process. The last may be that of its end."""
    reader, writer = os.pipe()
    command = [
        sys.executable,
        "-P",
        "-m",
        "interpool.native.diagnostics.import_trial",
        str(writer),
        str(interpreters),
        *names,
    ]
    with tempfile.TemporaryFile() as errors, open(reader, "rb", buffering=0) as answers:
        try:
            process = subprocess.Popen(
                command,
                pass_fds=(writer,),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )
        finally:
            os.close(writer)
        try:
            for i in range(1 + len(names)):
                allowed = seconds if i else _START_SECONDS
                line = _line(answers, allowed)
                if line is None:
                    yield _Outcome(f"it was not done after {allowed:.0f} s", pool=i > 0)
                    return
                if not line.endswith(b"\n"):
                    process.wait()
                    errors.seek(0)
                    said = errors.read().decode(errors="replace")
                    yield _Outcome(_end(process.returncode, said), pool=i > 0)
                    return
                outcome = _Outcome(**json.loads(line))
                if i > 0 or not outcome.pool:
                    yield outcome
        finally:
            process.kill()
            process.wait()


def _line(answers: Any, seconds: float) -> bytes | None:
    """The next line; less than a line at the end of the process, None when the time is up."""
    found = b""
    deadline = time.monotonic() + seconds
    while not found.endswith(b"\n"):
        if not select.select([answers], [], [], max(0.0, deadline - time.monotonic()))[0]:
            return None
        more = answers.read(1 << 16)
        if not more:
            break
        found += more  # a line at a time: the next is written after the next import
    return found


def _end(returncode: int, said: str) -> str:
    """Why the process ended, from its status and its stderr."""
    if returncode >= 0:
        last = (said.strip().splitlines() or ["nothing was said"])[-1]
        return f"the process ended with exit status {returncode} ({last})"
    why = f"it crashed with {_signal(returncode)}"
    thrown = re.search(r"^\s*what\(\):\s*(.+)", said, re.MULTILINE)
    at = re.search(r'^  File "(?!<frozen)(.+)", line (\d+) in (.+)', said, re.MULTILINE)
    if thrown:
        why += f": {thrown[1]}"
    return f"{why}, at {at[1]}:{at[2]} in {at[3]}" if at else why


def _signal(returncode: int) -> str:
    try:
        return signal.Signals(-returncode).name
    except ValueError:
        return f"signal {-returncode}"


def _main(fd: int, interpreters: int, names: Sequence[str]) -> None:
    """Import ``names`` into all interpreters of a pool, and tell how it went."""
    import threading

    from interpool.native.errors import InterpoolError, RemoteError
    from interpool.native.pool.manager import InterpreterManager, InterpreterSession

    def tell(**outcome: Any) -> None:
        os.write(fd, json.dumps(outcome).encode() + b"\n")

    with contextlib.ExitStack() as stack:
        try:
            manager = stack.enter_context(InterpreterManager(interpreters))
            sessions = [stack.enter_context(manager.acquire_session()) for _ in range(interpreters)]
        except InterpoolError as error:
            tell(failure=str(error), pool=False)
            return
        for session in sessions:
            # After a crash each tells its own thread's stack, then hands on to the one before.
            session.global_("interpool.native.inside.process_guards", "report_crashes")(all_threads=False)
        tell()

        def work(session: InterpreterSession, name: str) -> None:
            barrier.wait()
            try:
                session.global_("importlib", "import_module")(name)
            except RemoteError as error:
                failures.append(f"{error.type_name}: {error.message}")
            except InterpoolError as error:
                failures.append(str(error))

        for name in names:
            barrier = threading.Barrier(interpreters)
            failures: list[str] = []
            threads = [threading.Thread(target=work, args=(session, name)) for session in sessions]
            started = time.monotonic()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            tell(failure=failures[0] if failures else "", seconds=time.monotonic() - started)


if __name__ == "__main__":
    _main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
