"""Record locks of files (fcntl), on which databases stand: interpreters exclude each other."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest
from interpool_testing import Code, every_interpreter

from interpool.native import InterpreterManager
from interpool.native.errors import RemoteError

SOURCE = """
import fcntl, os

files = []

def open_file(path):
    files.append(open(path, "r+b", buffering=0))
    return len(files) - 1

def lock(number, kind, start=0, length=0):
    fcntl.lockf(files[number], getattr(fcntl, kind) | fcntl.LOCK_NB, length, start)

def unlock(number):
    fcntl.lockf(files[number], fcntl.LOCK_UN)

def close(number):
    files[number].close()

def start_a_program():
    import subprocess
    subprocess.run(["true"], check=True)
"""

LOCK_OUTSIDE = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("locked")
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "database"
    file.write_bytes(bytes(100))
    return file


def is_locked_to_others(path: Path) -> bool:
    done = subprocess.run(
        [sys.executable, "-c", LOCK_OUTSIDE, str(path)], capture_output=True, text=True, check=True
    )
    return done.stdout == "locked\n"


@pytest.mark.long
def test_one_interpreters_lock_keeps_others_and_the_host_out(manager: InterpreterManager, path: Path) -> None:
    with every_interpreter(manager, 2) as sessions:
        one, other = (Code(session, SOURCE) for session in sessions)
        for code in (one, other):
            code.call("open_file", str(path))
        one.call("lock", 0, "LOCK_EX")
        with pytest.raises(RemoteError, match="BlockingIOError"):
            other.call("lock", 0, "LOCK_SH")
        with open(path, "r+b") as file, pytest.raises(BlockingIOError):
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert is_locked_to_others(path)
        one.call("unlock", 0)
        other.call("lock", 0, "LOCK_EX")
        with pytest.raises(RemoteError, match="BlockingIOError"):
            one.call("lock", 0, "LOCK_EX")
        other.call("close", 0)  # which unlocks
        one.call("lock", 0, "LOCK_EX")
        one.call("close", 0)
        assert not is_locked_to_others(path)


def test_readers_share_and_writers_of_other_parts_do_not_meet(
    manager: InterpreterManager, path: Path
) -> None:
    with every_interpreter(manager, 2) as sessions:
        one, other = (Code(session, SOURCE) for session in sessions)
        for code in (one, other):
            code.call("open_file", str(path))
            code.call("lock", 0, "LOCK_SH", 0, 10)
        one.call("lock", 0, "LOCK_EX", 20, 10)
        other.call("lock", 0, "LOCK_EX", 30, 10)
        with pytest.raises(RemoteError, match="BlockingIOError"):
            other.call("lock", 0, "LOCK_EX", 25, 10)
        for code in (one, other):
            code.call("close", 0)


def test_within_an_interpreter_locks_are_the_files_not_the_descriptors(
    manager: InterpreterManager, path: Path
) -> None:
    with manager.acquire_session(timeout=60) as session:
        code = Code(session, SOURCE)
        for _ in range(3):
            code.call("open_file", str(path))
        code.call("lock", 0, "LOCK_EX")
        code.call("lock", 1, "LOCK_EX")  # its own already
        assert is_locked_to_others(path)
        code.call("unlock", 1)
        assert not is_locked_to_others(path)
        code.call("lock", 0, "LOCK_EX")
        code.call("close", 2)  # any descriptor's end is all locks', as POSIX has it
        assert not is_locked_to_others(path)
        code.call("close", 0)
        code.call("close", 1)


def test_a_program_that_is_started_meanwhile_takes_no_lock_away(
    manager: InterpreterManager, path: Path
) -> None:
    with manager.acquire_session(timeout=60) as session:
        code = Code(session, SOURCE)
        code.call("open_file", str(path))
        code.call("lock", 0, "LOCK_EX")
        code["start_a_program"]()
        assert is_locked_to_others(path)
        code.call("close", 0)
        assert not is_locked_to_others(path)
