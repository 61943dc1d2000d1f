"""Runtime directories of servers that are gone are removed, and no others."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from pid_namespaces import in_another_pid_namespace, start_in_another_pid_namespace

from interpool.handler.frontend import shim
from interpool.handler.host.runtime_directory import UNUSED_S, remove_stale

REMOVE = """
import sys
from pathlib import Path
from interpool.handler.host.runtime_directory import remove_stale
remove_stale(Path(sys.argv[1]))
"""
HOLD = """
import os, sys
from pathlib import Path
from interpool.handler.frontend import shim
directory = Path(sys.argv[1], shim.instance_key(os.getpid(), "p"))
directory.mkdir()
held = shim.hold(str(directory))
print(directory.name, flush=True)
input()
"""


@pytest.fixture
def frontend() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield process
        process.kill()


def _age(directory: Path) -> None:
    os.utime(directory, (0, 0))


def test_directories_of_servers_that_are_gone_are_removed(
    tmp_path: Path, frontend: subprocess.Popen[bytes]
) -> None:
    system = shim.system_key()
    live = tmp_path / shim.instance_key(frontend.pid, "p")
    reused = tmp_path / f"{frontend.pid}-1-{system}-p"
    dead = tmp_path / f"{2**22 + 1}-5-{system}-p"
    nameless = tmp_path / f"{2**22 + 1}--p"  # of a version that named some so
    other = tmp_path / "something-else"
    for directory in (live, reused, dead, nameless, other):
        directory.mkdir()
        _age(directory)
    remove_stale(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([live, other])


def test_a_directory_that_is_held_stays_under_any_process_id(tmp_path: Path) -> None:
    """A host may outlive its server for a moment, and its name say a process that is gone."""
    system = shim.system_key()
    for name in (f"{2**22 + 1}-5-{system}-p", f"{2**22 + 1}-5-00000000.1-p", f"{2**22 + 1}-5-p"):
        directory = tmp_path / name
        directory.mkdir()
        held = shim.hold(str(directory))
        _age(directory)
        _assert_stays_until_closed(directory, held)


def test_a_directory_in_which_a_host_is_being_started_stays(tmp_path: Path) -> None:
    directory = tmp_path / f"{2**22 + 1}-5-{shim.system_key()}-p"
    _assert_stays_until_closed(directory, shim.lock(str(directory)))


def _assert_stays_until_closed(directory: Path, descriptor: int) -> None:
    remove_stale(directory.parent)
    assert directory.is_dir()
    os.close(descriptor)
    remove_stale(directory.parent)
    assert not directory.exists()


def test_a_directory_of_another_system_stays_for_a_day(tmp_path: Path) -> None:
    """Its host may have died, and its server be about to start the next one."""
    directory = tmp_path / f"{2**22 + 1}-5-00000000.1-p"
    directory.mkdir()
    remove_stale(tmp_path)
    assert directory.is_dir()
    os.utime(directory, (0, directory.stat().st_mtime - UNUSED_S - 1))
    remove_stale(tmp_path)
    assert not directory.exists()


def test_containers_that_share_the_directory_leave_each_others_alone(
    tmp_path: Path, frontend: subprocess.Popen[bytes]
) -> None:
    ours = tmp_path / shim.instance_key(frontend.pid, "p")
    ours.mkdir()
    held = shim.hold(str(ours))
    _age(ours)
    with start_in_another_pid_namespace(HOLD, tmp_path) as other:
        assert other.stdout is not None
        theirs = tmp_path / other.stdout.readline().strip()
        assert theirs.name.startswith("1-")  # a process id that is another process's here
        _age(theirs)
        remove_stale(tmp_path)
        in_another_pid_namespace(REMOVE, tmp_path)
        assert sorted(tmp_path.iterdir()) == sorted([ours, theirs])
        other.communicate("\n")
    remove_stale(tmp_path)
    assert list(tmp_path.iterdir()) == [ours]
    os.close(held)
