"""Runs child processes with a typed job and typed results.

A child is ``python -P -m MODULE``, and MODULE calls ``serve``. Job and results are JSON on separate
descriptors, so that the child's own input and output cannot mix with them. Results are never pickles, as a
child may run an archive's code. The child's standard output goes to standard error.
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

# Time limit for a child's exit functions.
_EXIT_FUNCTIONS_SECONDS = 2.0
# Time limit for a child's end after its last result.
_END_SECONDS = 30.0
# Interval of checks whether a silent child still runs: its own children may keep its pipe open.
_POLL_SECONDS = 0.1
_CHUNK = 1 << 16


@dataclass(frozen=True)
class Program(Generic[Job, Result]):
    """The program of a child process.

    Attributes:
        module: its dotted name; run as a program, it calls ``serve`` with this object.
        job: type of the job, a dataclass that ``typed_json`` supports.
        result: type of the results, likewise.
    """

    module: str
    job: type[Job]
    result: type[Result]


class ChildError(InterpoolError):
    """A child process gave no result; the message continues a sentence that names the child.

    Attributes:
        message: the message.
        returncode: its exit status; None if it was killed after a time limit.
        signal: the name of the signal that ended it, such as SIGSEGV, or "".
        stderr: its standard error, if it was captured.
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
    """A running child process; see ``start``."""

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
        self._buffer = bytearray()
        self._poll = select.poll()  # select() does not support the many descriptors of a server
        self._poll.register(results, select.POLLIN)

    def result(self, timeout: float | None = None) -> Result:
        """Return the next result.

        Args:
            timeout: seconds that it may take; None for no limit.

        Raises:
            ChildError: the child has ended, or gave no result in time.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        searched = 0  # bytes
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
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
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        try:
            found: Result = typed(strict_loads(line), self._type)
        except BadJson as error:
            raise ChildError(f"gave a result that {error}") from None
        return found

    def kill(self) -> None:
        """Kill the child now, without its exit functions."""
        self._process.kill()

    def _wait_for_end(self, deadline: float | None) -> None:
        """Wait for a child that has closed its end of the pipe, which is its last action."""
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
        how = f"was killed by {explained(name)}" if name else f"ended with status {code} and no answer"
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
    """Start a child process that works on a job, for the duration of the block; kill it if that raises.

    At the end of the block it must have given its last result, and may run its exit functions (see
    ``leave``).

    Args:
        program: the program.
        job: the job.
        cwd: its working directory; default: this process's.
        env: its whole environment; default: this process's.
        capture_stderr: keep its output for ChildError; default: it goes to this process's standard error.
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
    """Run a job in a child process and return its only result.

    Args:
        program: as in start.
        job: as in start.
        cwd: as in start.
        env: as in start.
        timeout: seconds that it may take; None for no limit.
        capture_stderr: as in start.

    Raises:
        ChildError: it gave no result.
    """
    with start(program, job, cwd=cwd, env=env, capture_stderr=capture_stderr) as child:
        return child.result(timeout)


# ---- in the child -----------------------------------------------------------------------------


def serve(program: Program[Job, Result], work: Callable[[Job], Iterable[Result]]) -> None:
    """Do the job as a child's main function, and write each result when it is found.

    Does not return. An exception of ``work`` ends the child with a traceback.

    Args:
        program: as in start.
        work: yields the results of a job.
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
    except BaseException:  # noqa: BLE001 (this process ends here in any case)
        traceback.print_exc()
    finally:
        leave(status)


def leave(status: int = 0) -> NoReturn:
    """End this process regardless of remaining threads and exit functions.

    Python's exit functions run for a limited time. Threads are not joined, and neither Python nor C libraries
    are finalized, because any of these may block forever.

    Args:
        status: its exit status.
    """
    # Use the signal's default action, which kills the process: a Python handler needs the GIL, which a
    # blocked exit function may have.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
    signal.setitimer(signal.ITIMER_REAL, _EXIT_FUNCTIONS_SECONDS)
    try:
        run_exit_functions()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        ctypes.CDLL(None).fflush(None)  # flush the output of C code
    finally:
        os._exit(status)


def explained(signal_name: str) -> str:
    """Return the name of a signal that ended a process, with its usual cause if it says little by itself."""
    return f"{signal_name} (usually because memory ran out)" if signal_name == "SIGKILL" else signal_name


def _signal_name(returncode: int | None) -> str:
    if returncode is None or returncode >= 0:
        return ""
    try:
        return signal.Signals(-returncode).name
    except ValueError:
        return f"signal {-returncode}"
