"""What ``interpool serve`` leaves when its server has ended, with a program in place of Java."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from interpool.handler.commands import serve
from interpool.handler.direct.listening import Address

PROGRAM = """
from interpool.handler.cli import main
from interpool.handler.commands import serve

serve.RELEASE_S = 0.0
main()
"""


def _command(directory: Path, *arguments: str, java: str) -> tuple[list[str], dict[str, str]]:
    """The command in a directory of its own, which is its TEMP, too; and its environment."""
    program = directory / "java-home" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{java}\n")
    program.chmod(0o755)
    (directory / "store").mkdir()
    environment = {
        **os.environ,
        "JAVA_HOME": str(directory / "java-home"),
        "INTERPOOL_RUNTIME_DIR": str(directory / "runtime"),
        "INTERPOOL_START_AHEAD": "0",
        "TEMP": str(directory),
        "TMPDIR": str(directory),
    }
    return [sys.executable, "-c", PROGRAM, "serve", *arguments], environment


def _serve(directory: Path, *arguments: str, java: str = "exit 0") -> subprocess.CompletedProcess[str]:
    """Run the command there to its end."""
    command, environment = _command(directory, *arguments, java=java)
    return subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True)


def _homes(directory: Path) -> list[Path]:
    return list(directory.glob("interpool-server-*"))


def test_a_server_in_the_foreground_leaves_no_home(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    look = f'ls "$TS_MODEL_SERVER_HOME" > {seen}; ls -l /proc/self/fd/0 >> {seen}'
    done = _serve(tmp_path, "--foreground", "--model-store", "store", java=look)
    assert done.returncode == 0, done.stderr
    assert "interpool_shim.py" in seen.read_text()
    assert "/held\n" in seen.read_text()
    assert _homes(tmp_path) == []


@pytest.mark.parametrize(
    ("java", "status", "how"),
    [
        ("exit 0", 0, ""),
        ("exit 143", 0, ""),
        ("kill -TERM $$", 0, ""),
        ("exit 1", 5, "ended with status 1"),
        ("kill -KILL $$", 5, "was killed by SIGKILL"),
    ],
)
def test_a_server_in_the_foreground_fails_unless_it_was_asked_to_end(
    tmp_path: Path, java: str, status: int, how: str
) -> None:
    done = _serve(tmp_path, "--foreground", "--model-store", "store", java=java)
    assert (done.returncode, how in done.stderr) == (status, True), done.stderr
    assert _homes(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_start_that_is_cancelled_ends_its_server(tmp_path: Path, number: signal.Signals) -> None:
    command, environment = _command(
        tmp_path, "--model-store", "store", java="while :; do sleep 0.1 < /dev/null; done"
    )
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as starting:
        assert starting.stderr is not None
        while "has been starting" not in (said := starting.stderr.readline()):
            assert said, "it has ended"
        starting.send_signal(number)
        assert "Aborted!" in starting.stderr.read()
    assert starting.returncode == 1
    assert _homes(tmp_path) == []  # a server that runs holds its home


@pytest.mark.parametrize("flags", [[], ["--foreground"]])
def test_a_start_that_torchserve_refuses_leaves_no_home(tmp_path: Path, flags: list[str]) -> None:
    done = _serve(tmp_path, *flags, "--model-store", "none")
    assert (done.returncode, "--model-store directory not found: none" in done.stdout) == (1, True)
    assert _homes(tmp_path) == []


def test_a_server_that_ends_before_it_serves_leaves_no_home(tmp_path: Path) -> None:
    done = _serve(tmp_path, "--model-store", "store")
    assert (done.returncode, "TorchServe ended before it served" in done.stderr) == (5, True)
    assert _homes(tmp_path) == []


@pytest.fixture(params=["TCP", "unix"])
def taken(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An address at which another process listens."""
    address = Address("127.0.0.1") if request.param == "TCP" else Address(path=str(tmp_path / "taken"))
    (listener,) = address.bind()
    with listener:
        listener.listen()
        yield f"127.0.0.1:{listener.getsockname()[1]}" if request.param == "TCP" else str(address)


def test_a_direct_address_that_another_process_has_is_refused_before_anything_starts(
    tmp_path: Path, taken: str
) -> None:
    done = _serve(tmp_path, "--direct", taken, "--foreground", "--model-store", "store", java="touch started")
    assert done.returncode == 5, done.stderr
    assert f"the address {taken} cannot be had: Address already in use. Name another one" in done.stderr
    assert not (tmp_path / "started").exists()


def test_a_direct_address_whose_server_has_ended_is_free(tmp_path: Path) -> None:
    address = Address(path=str(tmp_path / "left"))
    for listener in address.bind():
        listener.close()
    direct = ("--direct", str(address))
    done = _serve(tmp_path, *direct, "--foreground", "--model-store", "store", java="touch started")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "started").exists()


def test_the_host_of_a_stopped_server_may_still_have_the_direct_address_for_a_while(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = [OSError(errno.EADDRINUSE, "Address already in use")] * 3

    def bind(_address: Address) -> list[socket.socket]:
        if taken:
            raise taken.pop()
        return []

    monkeypatch.setattr(Address, "bind", bind)
    monkeypatch.setattr(serve, "RELEASE_S", 1000.0)
    serve._await_free(Address("127.0.0.1", 8090))
    assert capsys.readouterr().err.count("waiting for the direct address 127.0.0.1:8090") == 1


def test_a_direct_address_that_is_wrong_does_not_keep_the_server_from_being_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERPOOL_DIRECT_ADDRESS", "nowhere")
    done = _serve(tmp_path, "--stop")
    assert (done.returncode, done.stdout) == (0, "TorchServe is not currently running.\n")
