"""Commands that cannot use a file, a directory or the output say what to do, without a traceback."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pool_states
import pytest
from archives import archive_of
from click.testing import CliRunner, Result

from interpool.handler.cli import main
from interpool.handler.frontend import serving_checks
from interpool.handler.host import control

TOO_LONG = "x" * 300  # for a file's name: the system refuses to look for it


def run(*args: str | Path) -> Result:
    done = CliRunner().invoke(main, [*map(str, args)])
    assert isinstance(done.exception, SystemExit | None)
    return done


@pytest.fixture(autouse=True)
def own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("INTERPOOL_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "FILE").write_text("no archive")
    (tmp_path / "empty").mkdir()
    with zipfile.ZipFile(tmp_path / "zip.mar", "w") as file:
        file.writestr("mö del/a", "")
    return tmp_path


@pytest.mark.parametrize(
    ("args", "status", "words"),
    [
        (["doctor", "extra"], 2, "what is 'extra'? Give --imports for modules, --run for MODULE:FUNCTION"),
        (["status", "--times", "2"], 2, "--times goes with --watch"),
        (["cache", "--remove", "--unused-for", "nan"], 2, "--unused-for takes a number of days"),
        (["doctor", "--mar", "FILE"], 5, "FILE is not an archive of TorchServe's: "),
        (["doctor", "--mar", "FILE"], 5, "Make one with `interpool archive`, or torch-model-archiver"),
        (["doctor", "--mar", "zip.mar"], 5, "zip.mar holds no MAR-INF/MANIFEST.json"),
        (["doctor", "--mar", "empty"], 1, "empty holds no MAR-INF/MANIFEST.json"),
        (["run", "zip.mar"], 5, "zip.mar holds no MAR-INF/MANIFEST.json"),
        (["run", "FILE", "--batch-size=3000000000"], 5, "`--batch-size` cannot be 3000000000"),
        (["run", "FILE", "--client-timeout=nan"], 5, "`--client-timeout` cannot be nan"),
        (["run", "=FILE"], 5, "there is no archive =FILE"),
        (["run", TOO_LONG], 1, f"cannot use {TOO_LONG}: File name too long. Correct the path"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else None,
)
def test_a_command_line_that_cannot_work_is_explained(args: list[str], status: int, words: str) -> None:
    done = run(*args)
    assert done.exit_code == status
    assert words in done.output


@pytest.mark.parametrize(
    ("variable", "command", "status", "words"),
    [
        ("INTERPOOL_CACHE", "home", 5, "cannot build the overlay in"),
        ("XDG_DATA_HOME", "home", 5, "cannot build the overlay in"),
        ("INTERPOOL_CACHE", "cache", 1, "cannot use"),
        ("TEMP", "serve", 5, "cannot make the server's home in"),
    ],
)
def test_a_directory_that_cannot_be_looked_into_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str, command: str, status: int, words: str
) -> None:
    monkeypatch.setattr(serving_checks, "java_path", lambda: "/usr/bin/java")
    monkeypatch.setenv("INTERPOOL_START_AHEAD", "0")
    monkeypatch.delenv("INTERPOOL_CACHE", raising=False)
    monkeypatch.setenv(variable, str(tmp_path / TOO_LONG))
    done = run(command)
    assert done.exit_code == status
    assert f"{words} {tmp_path / TOO_LONG}" in done.stderr


def test_a_cache_that_is_a_file_does_not_look_empty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("INTERPOOL_CACHE", str(tmp_path / "FILE"))
    done = run("cache")
    assert (done.exit_code, done.stdout) == (1, "")
    assert f"cannot use {tmp_path / 'FILE'}: Not a directory" in done.stderr


def test_a_file_in_the_runtime_directorys_place_is_not_to_be_removed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("INTERPOOL_RUNTIME_DIR", str(tmp_path / "FILE"))
    (tmp_path / "FILE").chmod(0o700)
    done = run("status")
    assert done.exit_code == 5
    assert "must be a directory of this user with mode 0700" in done.stderr
    assert "remove" not in done.stderr
    assert "chmod" not in done.stderr


@pytest.mark.parametrize("name", ["a/b", "mö del", "-m", ""])
def test_a_name_that_torchserve_would_refuse_is_explained_before_the_archiver_runs(
    tmp_path: Path, name: str
) -> None:
    package = archive_of(tmp_path / "mö del.ptpkg", {})
    given = [f"--model-name={name}"] if name else []
    done = run("archive", package, "--export-path", tmp_path, *given)
    assert done.exit_code == 4
    assert f"{name or 'mö del'!r} cannot be the name of a model in TorchServe" in done.stderr
    assert "--model-name" in done.stderr


@contextlib.contextmanager
def _host(directory: Path, answer: bytes) -> Iterator[None]:
    """A host's control socket, which gives one answer to every question."""
    directory.mkdir(parents=True)
    with control.listen(directory) as listener:
        listener.setblocking(True)

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    with listener.accept()[0] as peer:
                        peer.recv(100)
                        peer.send(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_a_host_that_does_not_answer_may_serve_the_model_that_another_pool_has_ready(tmp_path: Path) -> None:
    runtime = tmp_path / "runtime"
    pool = json.dumps(pool_states.pool()).encode()
    with _host(runtime / "a", pool):
        assert run("status", "--check", "m").exit_code == 0
        with _host(runtime / "b", b"refused\0it has no descriptor"):
            done = run("status", "--check", "m")
            assert (done.exit_code, done.stdout) == (1, "m/1.0 in pool 'default': ready\n")
            assert f"{runtime / 'b'}: it has no descriptor" in done.stderr
            found = json.loads(run("status", "--check", "m", "--json").stdout)
            assert (found["ready"], found["error"]["status"]) == (False, 1)
            found = json.loads(run("status", "--json").stdout)
            assert (found["pools"][0]["pool"], found["error"]["status"]) == ("default", 1)


@pytest.mark.parametrize("command", ["--help", "handler", "status", "cache --json"])
def test_an_output_that_takes_no_more_is_a_message(command: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", "from interpool.handler.cli import main; main()", *command.split()],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    said = "standard output cannot be written: No space left on device. Make room, or print elsewhere"
    assert done.stderr == f"interpool: {said}\n"


@pytest.mark.parametrize("command", ["-h", "inspect m.ptpkg", "inspect m.ptpkg --json", "serve -h"])
def test_a_closed_output_is_no_error(tmp_path: Path, command: str) -> None:
    archive_of(tmp_path / "m.ptpkg", {})
    code = f'"{sys.executable}" -c "from interpool.handler.cli import main; main()" {command}'
    for redirection in (">&-", "<&- >&-", "| head -1"):
        done = subprocess.run(
            ["/bin/sh", "-c", f"{code} {redirection}"], cwd=tmp_path, capture_output=True, text=True
        )
        assert (done.returncode, done.stderr) == (0, "")


def test_a_working_directory_that_is_gone_is_named(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    try:
        done = run("doctor", "--imports", "json")
    finally:
        os.chdir(tmp_path)
    assert done.exit_code == 1
    assert "the working directory has been removed: change to another one" in done.stderr
