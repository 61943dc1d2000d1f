"""Python in a PID namespace of its own, as a container's: it sees no process of this one."""

from __future__ import annotations

import functools
import subprocess
import sys

import pytest


@functools.cache
def _unshare() -> list[str]:
    """The command that makes one; skips the test if this user may not."""
    for options in (["--pid"], ["--user", "--map-root-user", "--pid"]):
        command = ["unshare", *options, "--fork", "--kill-child", "--mount-proc"]
        try:
            if not subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
                return command
        except OSError:
            break
    pytest.skip("no PID namespace can be made here")


def start_in_another_pid_namespace(source: str, *arguments: object) -> subprocess.Popen[str]:
    """Run a program there; its standard input and output are pipes."""
    command = [*_unshare(), sys.executable, "-c", source, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def in_another_pid_namespace(source: str, *arguments: object) -> str:
    """Run a program there to its end; gives what it has printed."""
    with start_in_another_pid_namespace(source, *arguments) as process:
        said, _ = process.communicate(timeout=120)
    assert process.returncode == 0, said
    return said
