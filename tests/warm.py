"""Packing's child processes in tests: forked from one that has imported what they import, torch above all.

Importing torch takes each of them more than a second of the CPU, and the tests pack a hundred times. So a
pytest process has, from its first use on, a warm process for each program. That runs the program's module
under another name than ``__main__``, which imports what the module imports at its top, and nothing of a
user's. For each job it forks a child, which takes the job's descriptors, working directory and environment.
The child runs the module as ``python -m`` does. ``child_process`` is unchanged, but for its way to start
processes.

What differs from a process of one's own (with ``INTERPOOL_TEST_FRESH_CHILDREN`` tests have such):

- ``sys.orig_argv``, contents of ``__main__`` that only Python puts there, such as empty ``__annotations__``;
- the frames below the program's own, which are runpy's and this file's;
- what is decided when a process starts or torch is imported, which is as it was for the warm one. These are
  limits, umask, signals that are ignored, and variables that are read then. If one of those variables differs
  from the pytest process's, a process is started;
- warnings at import, which the warm process prints once;
- caches, and numpy's random state if numpy has been imported, which are as the warm process left them.
  Python's own random state is another in each child;
- BLAS starts its threads when it is first asked for something, and not when it is imported;
- its parent is a process between it and the warm one, that says how it ended; addresses are alike in all.

Tests of processes themselves have the mark ``fresh_children``, and ``scripts/test --long`` sets FRESH, with
which no child is forked.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, NoReturn

FRESH = "INTERPOOL_TEST_FRESH_CHILDREN"
PROGRAMS = "interpool.archiver_ext.packing."
# Variables that are read when a process starts, or when what those programs import is imported.
_READ_EARLY = (
    *("PYTHON", "LD_", "LC_", "LANG", "TZ", "GLIBC_", "MALLOC_", "INTERPOOL_", "TORCH", "PYTORCH_", "ATEN_"),
    *("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "NPY_", "NUMPY_", "CUDA_"),
)
_MOST_WARM = 4
_MESSAGE = 1 << 17  # bytes; a longer one is refused by the system
_THREADS_END_SECONDS = 10.0

# ---- in the pytest process --------------------------------------------------------------------

is_aside = False
"""Whether processes are started, for the test that runs now."""

# By program, and by what it may have read early: libraries that tests import set variables for good.
_Key = tuple[str, tuple[tuple[str, str], ...]]
_warm: dict[_Key, tuple[socket.socket, subprocess.Popen[bytes]]] = {}
_starting = threading.Lock()  # tests may pack on several threads at once


def stand_in() -> Any:
    """What ``child_process`` is to have for subprocess."""
    return SimpleNamespace(Popen=_start, TimeoutExpired=subprocess.TimeoutExpired)


def end() -> None:
    """End the warm processes."""
    for control, process in _warm.values():
        control.close()
        process.wait()
    _warm.clear()


def _start(command: list[str], **options: Any) -> Any:
    environment = os.environ if options["env"] is None else options["env"]
    *_, module, results = command
    warms = module.startswith(PROGRAMS) and not is_aside and FRESH not in os.environ
    early = _early(environment)
    key = (module, tuple(sorted(early.items())))
    is_usual = early == _early({**os.environ, "PYTHONHASHSEED": "0"})
    if not (warms and is_usual and (key in _warm or len(_warm) < _MOST_WARM)):
        return subprocess.Popen(command, **options)
    with _starting:
        if key not in _warm:
            _warm[key] = _start_warm(module, dict(environment))
    error = 2 if options["stderr"] is None else options["stderr"].fileno()
    job = json.dumps([str(options["cwd"] or os.getcwd()), dict(environment)]).encode()
    return Forked(_warm[key][0], job, [options["stdin"].fileno(), error, error, int(results)])


def _early(environment: Mapping[str, str]) -> dict[str, str]:
    # Python takes an empty one for none.
    return {name: value for name, value in environment.items() if name.startswith(_READ_EARLY) and value}


def _start_warm(module: str, environment: dict[str, str]) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, "-P", __file__, module, str(theirs.fileno())]
        descriptors = [theirs.fileno()]
        return ours, subprocess.Popen(
            command, stdin=subprocess.DEVNULL, env=environment, pass_fds=descriptors
        )


class Forked:
    """What ``child_process`` asks of a ``subprocess.Popen``, of a child that a warm process has forked."""

    def __init__(self, control: socket.socket, job: bytes, descriptors: list[int]) -> None:
        self.returncode: int | None = None
        self._word, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            socket.send_fds(control, [job], [theirs.fileno(), *descriptors])
        _, held, _, _ = socket.recv_fds(self._word, 1, 1)
        assert held, "the warm process has ended; it says above why"
        self._process = held[0]

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self._word.settimeout(timeout)
            try:
                self.returncode = int(self._word.recv(_MESSAGE))
            except (BlockingIOError, TimeoutError):
                raise subprocess.TimeoutExpired("a forked child", timeout or 0) from None
            self._word.close()
            os.close(self._process)
        return self.returncode

    def kill(self) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._process, signal.SIGKILL)


# ---- in the warm process ----------------------------------------------------------------------


def _serve(module: str, control: socket.socket) -> None:
    """Fork a child for each job, until the pytest process closes its end, or is no more."""
    # It ends when pytest does, which may have more to do first.
    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
    runpy.run_module(module, run_name="__warm__", alter_sys=True)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no process waits for one that waits for a child
    _check_threads()
    while (received := socket.recv_fds(control, _MESSAGE, 5))[0]:
        job, descriptors, _, _ = received
        if not os.fork():
            control.close()
            _supervise(module, interrupt, job, *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _check_threads() -> None:
    """What a thread of this process held when a child is forked would be held for ever there."""
    if not os.fork():  # before which BLAS ends its own; they start anew with its first work
        os._exit(0)
    deadline = time.monotonic() + _THREADS_END_SECONDS
    while len(os.listdir("/proc/self/task")) > 1:
        assert time.monotonic() < deadline, "importing what is packed with leaves threads behind"
        time.sleep(0.001)


def _supervise(module: str, interrupt: Any, job: bytes, word: int, *descriptors: int) -> NoReturn:
    """Fork the child, and say how it ended."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        child = os.fork()
        if not child:
            os.close(word)
            signal.signal(signal.SIGINT, interrupt)
            _become(module, job, *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        with socket.socket(fileno=word) as answering:
            socket.send_fds(answering, [b"."], [os.pidfd_open(child)])
            _, status = os.waitpid(child, 0)
            answering.send(str(os.waitstatus_to_exitcode(status)).encode())
    finally:
        os._exit(0)


def _become(module: str, job: bytes, *descriptors: int) -> None:
    *streams, results = descriptors
    for own, descriptor in enumerate(streams):
        os.dup2(descriptor, own)
        os.close(descriptor)
    directory, environment = json.loads(job)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    importlib.invalidate_caches()
    sys.argv = [module, str(results)]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _serve(sys.argv[1], socket.socket(fileno=int(sys.argv[2])))
    os._exit(0)
