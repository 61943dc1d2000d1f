"""Child processes of our own: a typed job goes in, typed results come out.

A child is ``python -P -m MODULE``, and MODULE calls ``serve``. Job and results are JSON on
descriptors that are no one's standard streams, so that nothing that the child's code prints,
reads or breaks can mix with them; results are data and never pickles, as a child may run an
archive's code. What a child prints goes to standard error.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Generic, NoReturn, TypeVar

from interpool.native.archive.typed_json import BadJson, strict_loads, to_json, typed
from interpool.native.errors import InterpoolError
from interpool.native.upstream.cpython_private import run_exit_functions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

Job = TypeVar("Job")
Result = TypeVar("Result")

logger = logging.getLogger(__name__)

# How long the exit functions of a child may take.
_EXIT_FUNCTIONS_SECONDS = 2.0
# How long a child may take to end when it has given its last result, or cannot give any more.
_END_SECONDS = 30.0
# How often a silent child is asked whether it still runs: what it has forked may hold its pipe open.
_POLL_SECONDS = 0.1
_CHUNK = 1 << 16


@dataclass(frozen=True)
class Program(Generic[Job, Result]):
    """What a child process runs.

    Attributes:
        module: its dotted name; run as a program, it calls ``serve`` with this.
        job: a dataclass that ``typed_json`` knows.
        result: another.
    """

    module: str
    job: type[Job]
    result: type[Result]


class ChildError(InterpoolError):
    """A child process gave no result; the message is the rest of a sentence that names the child.

    Attributes:
        message: see above.
        returncode: its exit status; None if it was given up, and killed.
        signal: the name of the signal that ended it by itself, such as SIGSEGV, or "".
        stderr: what it said, if that was captured.
    """

    def __init__(self, message: str, returncode: int | None = None, stderr: str = "") -> None:
        super().__init__(message, returncode, stderr)
        self.message = message
        self.returncode = returncode
        self.signal = _signal_name(returncode)
        self.stderr = stderr

    def __str__(self) -> str:
        return self.message


class Child(Generic[Result]):
    """A child process at work; see ``start``."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        results: IO[bytes],
        stderr: IO[bytes] | None,
        result: type[Result],
    ) -> None:
        self._process = process
        self._results = results
        self._stderr = stderr
        self._type = result
        self._buffer = b""
        self._poll = select.poll()  # a server has more descriptors than select() can look at
        self._poll.register(results, select.POLLIN)

    def result(self, timeout: float | None = None) -> Result:
        """The next result.

        Args:
            timeout: how many seconds it may take; None for as long as it likes.

        Raises:
            ChildError: the child has ended, or does not give one in time.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while b"\n" not in self._buffer:
            left = _POLL_SECONDS if deadline is None else min(_POLL_SECONDS, deadline - time.monotonic())
            if left <= 0:
                self._process.kill()
                raise ChildError(f"took longer than {timeout:g} s")
            ended = self._process.poll() is not None
            readable = self._poll.poll(0 if ended else left * 1000)
            chunk = os.read(self._results.fileno(), _CHUNK) if readable else b""
            self._buffer += chunk
            if readable and not chunk:
                self._wait_for_end(deadline)
            if (ended or readable) and not chunk:
                raise self._ended()
        line, _, self._buffer = self._buffer.partition(b"\n")
        try:
            found: Result = typed(strict_loads(line), self._type)
        except BadJson as error:
            raise ChildError(f"gave a result that {error}") from None
        return found

    def kill(self) -> None:
        """End it at once, as nothing more is wanted of it; it runs no exit functions."""
        self._process.kill()

    def _wait_for_end(self, deadline: float | None) -> None:
        """Of a child that has closed its end of the pipe; that it does as the last thing before it ends."""
        left = _END_SECONDS if deadline is None else min(_END_SECONDS, deadline - time.monotonic())
        try:
            self._process.wait(max(left, 0.0))
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise ChildError("closed the pipe for its results and went on without giving one") from None

    def _ended(self) -> ChildError:
        code = self._process.returncode
        name = _signal_name(code)
        said = ""
        if self._stderr is not None:
            self._stderr.seek(0)
            said = self._stderr.read().decode(errors="replace")
        how = f"was killed by {name}" if name else f"ended with status {code} and no answer"
        return ChildError(how, code, said)


@contextlib.contextmanager
def start(
    program: Program[Job, Result],
    job: Job,
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    capture_stderr: bool = False,
) -> Iterator[Child[Result]]:
    """A child process that works on a job, for as long as the block runs; killed if that raises.

    At the end of the block it has given its last result, and may run its exit functions (see ``leave``).

    Args:
        program: what it runs.
        job: what it is to do.
        cwd: its working directory; default: this process's.
        env: its whole environment; default: this process's.
        capture_stderr: keep what it prints for ChildError; default: it goes to this process's
            standard error.
    """
    reader, writer = os.pipe()
    with contextlib.ExitStack() as stack:
        results = stack.enter_context(open(reader, "rb", buffering=0))
        try:
            given = stack.enter_context(tempfile.TemporaryFile())
            given.write(to_json(job).encode())
            given.seek(0)
            stderr = stack.enter_context(tempfile.TemporaryFile()) if capture_stderr else None
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", program.module, str(writer)],
                stdin=given,
                stdout=2 if stderr is None else stderr,
                stderr=stderr,
                cwd=cwd,
                env=env,
                pass_fds=[writer],
            )
        finally:
            os.close(writer)
        try:
            yield Child(process, results, stderr, program.result)
            _let_end(process, program.module)
        finally:
            process.kill()
            process.wait()


def _let_end(process: subprocess.Popen[bytes], module: str) -> None:
    try:
        if process.wait(_END_SECONDS) == -signal.SIGALRM:
            logger.warning(
                "%s gave its results; its exit functions did not end within %g s, and it was killed",
                module,
                _EXIT_FUNCTIONS_SECONDS,
            )
    except subprocess.TimeoutExpired:
        logger.warning("%s gave its results, and is killed: it did not end within %g s", module, _END_SECONDS)


def run(
    program: Program[Job, Result],
    job: Job,
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    capture_stderr: bool = False,
) -> Result:
    """The one result of a child process that works on a job.

    Args:
        program: as in start.
        job: as in start.
        cwd: as in start.
        env: as in start.
        timeout: how many seconds it may take; None for as long as it likes.
        capture_stderr: as in start.

    Raises:
        ChildError: it gave none.
    """
    with start(program, job, cwd=cwd, env=env, capture_stderr=capture_stderr) as child:
        return child.result(timeout)


# ---- in the child -----------------------------------------------------------------------------


def serve(program: Program[Job, Result], work: Callable[[Job], Iterable[Result]]) -> None:
    """The main function of a child's module: do the job, and hand each result over as it is found.

    Does not return. An exception of ``work`` is none of its results: it ends the child, with a traceback.
    """
    descriptor = int(sys.argv[1])
    os.set_inheritable(descriptor, False)
    status = 1
    try:
        job = typed(strict_loads(sys.stdin.buffer.read()), program.job)
        with open(descriptor, "wb") as results:
            for result in work(job):
                results.write(to_json(result).encode() + b"\n")
                results.flush()
        status = 0
    except BaseException:  # noqa: BLE001 -- whatever it is, this process ends here
        traceback.print_exc()
    finally:
        leave(status)


def leave(status: int = 0) -> NoReturn:
    """End this process, whatever threads and exit functions its code has left in it.

    Python's exit functions run for a limited time. Threads are not waited for, and neither Python nor the C
    libraries are finalised: any of these may wait for ever.

    Args:
        status: its exit status.
    """
    # The signal's default action kills the process. Anything in Python would need the GIL, and an exit
    # function may hold it while it waits.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
    signal.setitimer(signal.ITIMER_REAL, _EXIT_FUNCTIONS_SECONDS)
    try:
        run_exit_functions()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        ctypes.CDLL(None).fflush(None)  # what C code has printed
    finally:
        os._exit(status)


def _signal_name(returncode: int | None) -> str:
    if returncode is None or returncode >= 0:
        return ""
    try:
        return signal.Signals(-returncode).name
    except ValueError:
        return f"signal {-returncode}"
