"""What the tests of the native core share. Imported by tests and, its plain parts, by nothing inside."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from interpool.native import InterpreterManager, InterpreterSession, PyObj

T = TypeVar("T")
SUPPORT = Path(__file__).parent
TESTS = SUPPORT.parents[1]
PATH = [str(SUPPORT), str(TESTS), str(TESTS.parent / "scripts/support")]


MAKE_MODULE = """
import sys, types

def module(name, text, **more):
    made = types.ModuleType(name)
    vars(made).update(more)
    sys.modules[name] = made
    exec(text, vars(made))
    return made

"""  # source of a function that makes a module of a source, for what is run in interpreters


def pool_of(size: int, **options: Any) -> Any:
    """A module's fixture: a pool of its own, for what its tests leave behind in interpreters, or lose."""
    import pytest  # here, as programs that the tests start import this module, too

    @pytest.fixture(scope="module")
    def manager() -> Iterator[InterpreterManager]:
        with InterpreterManager(size, **options) as pool:
            yield pool

    return manager


class Code:
    """Python source run in an interpreter, and its names there."""

    def __init__(self, session: InterpreterSession, source: str) -> None:
        self._names = session.global_("builtins", "dict")()
        self._run = session.global_("builtins", "exec")
        self._run(textwrap.dedent(source), self._names)

    def __getitem__(self, name: str) -> PyObj:
        return self._names.attr("__getitem__")(name)

    def import_built(self, module: Path) -> None:
        """Makes an extension module (``compile.build``) one of the names there."""
        self._run(
            f"import sys\nsys.path.append({str(module.parent)!r})\n"
            f"import {module.stem}\nsys.path.remove({str(module.parent)!r})\n",
            self._names,
        )

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Calls a function there; its result as a value here."""
        return self[name](*args, **kwargs).to_value()


@contextmanager
def every_interpreter(
    manager: InterpreterManager, count: int | None = None
) -> Iterator[list[InterpreterSession]]:
    """Sessions of all of a pool's interpreters (or of ``count``) at once."""
    with ExitStack() as stack:
        yield [stack.enter_context(manager.acquire_session(timeout=60)) for _ in range(count or len(manager))]


def together(works: Sequence[Callable[[], T]], timeout: float = 120) -> list[T]:
    """Runs them at once, each on a thread of its own started by a barrier; their results, in order."""
    barrier = threading.Barrier(len(works))
    results: list[Any] = [None] * len(works)
    failures: list[BaseException] = []

    def run(i: int) -> None:
        barrier.wait()
        try:
            results[i] = works[i]()
        except BaseException as error:  # noqa: BLE001 (raised again below)
            failures.append(error)

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(len(works))]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + timeout
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    stuck = sum(thread.is_alive() for thread in threads)
    assert not stuck, f"{stuck} of {len(threads)} threads still ran after {timeout} s"
    if failures:
        raise failures[0]
    return results


class Gate:
    """Delays each thread that reads from it, in any interpreter or in native code, until it is opened.

    So a test decides when a call comes back: what is done before has not waited for that call.
    """

    def __init__(self) -> None:
        self.fd, self._write = os.pipe()

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *_: object) -> None:
        self.open()

    def open(self) -> None:
        """Lets all threads go on that read from ``fd``, now or later. It stays open, as one may be at it."""
        if self._write >= 0:
            os.close(self._write)
            self._write = -1


class Sign:
    """Given by code in an interpreter, which writes a byte to ``fd``, and awaited by a test, once."""

    def __init__(self) -> None:
        self._read, self.fd = os.pipe()

    def wait(self) -> None:
        os.read(self._read, 1)
        os.close(self._read)
        os.close(self.fd)


# Native code in an interpreter that reads from a gate, and keeps the GIL; it gives a sign that it has it.
HOLD_THE_GIL = """
import ctypes, sys
def hold_the_gil(fd, begun=-1):
    libc, buffer, interval = ctypes.PyDLL(None), ctypes.create_string_buffer(1), sys.getswitchinterval()
    sys.setswitchinterval(1000)  # nobody gets it between the two
    try:
        libc.write(begun, buffer, 1)
        libc.read(fd, buffer, 1)
    finally:
        sys.setswitchinterval(interval)
"""


def outstanding(manager: InterpreterManager) -> int:
    """How many arrays of ``counting_guest`` there are in all interpreters of a pool."""
    with every_interpreter(manager) as sessions:
        counts = [session.global_("counting_guest", "counts")().to_value() for session in sessions]
    return sum(made - freed for made, freed in counts)


def nobody_leases(manager: InterpreterManager) -> bool:
    """Whether every lease was given back. What is released on another thread takes a moment."""
    return not any(entry["leased"] for entry in manager.stats()["interpreters"])


def run_program(
    source: str, *args: str, timeout: float = 180, stack: int | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a Python program in a process of its own, with the modules in ``PATH`` at hand.

    ``stack``: the size of its threads' stacks by default, in bytes, as ``ulimit -s`` sets it; -1: unlimited.
    """
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*PATH, *filter(None, [os.environ.get("PYTHONPATH")])]),
        "OMP_NUM_THREADS": "1",
    }
    limit = []
    if stack is not None:
        limit = ["prlimit", f"--stack={'unlimited' if stack < 0 else stack}:"]
    return subprocess.run(
        [*limit, sys.executable, "-c", textwrap.dedent(source), *args],
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


# torch.package's own, once in each interpreter that opens an archive; and torch 2.15's of TorchScript.
_TORCHS_OWN = re.compile(
    r".*(UserWarning: TypedStorage|FutureWarning: `torch\.jit\.\w+`) is deprecated.*\n(  .*\n)?"
)


def run_beside(*command: str | Path, timeout: float, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a command, one of those beside this Python, whether or not its environment is activated."""
    return subprocess.run(
        [str(part) for part in command],
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def assert_clean(done: subprocess.CompletedProcess[str], returncode: int = 0) -> None:
    """It ended with that exit code, and had nothing to complain about."""
    complaints = _TORCHS_OWN.sub("", done.stderr)
    assert (done.returncode, complaints) == (returncode, ""), (
        f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    )


def printed(source: str, *args: str, timeout: float = 180, stack: int | None = None) -> str:
    """What a program (``run_program``) printed that ended well, and had nothing to complain about."""
    done = run_program(source, *args, timeout=timeout, stack=stack)
    assert_clean(done)
    return done.stdout


def rss_mib() -> float:
    """This process's resident memory, MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 2**20
