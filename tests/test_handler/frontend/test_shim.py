"""The shim's decisions; what it does with TorchServe is tested in tests/system."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from extracted import extracted
from waiting import wait_for

from interpool.handler import interpool_handler
from interpool.handler.frontend import shim
from interpool.native.provision import standby_path


@pytest.mark.parametrize(
    ("handler", "hermetic"),
    [
        ("interpool_handler.py", True),
        ("interpool_handler", True),
        ("interpool_handler.py:handle", True),
        ("image_classifier", False),
        ("my_interpool_handler.py", False),
        ("interpool_handler_v2.py", False),
        ("interpool_handler_v2.py:handle", False),
        ("interpool_handler.pyx", False),
    ],
)
def test_a_model_is_hermetic_by_its_handler(tmp_path: Path, handler: str, hermetic: bool) -> None:
    assert shim.is_hermetic(str(extracted(tmp_path, handler=handler))) is hermetic


def test_a_model_without_a_manifest_is_not_hermetic(tmp_path: Path) -> None:
    assert not shim.is_hermetic(str(tmp_path))


@pytest.mark.parametrize("file", ["folder", "dangling", "pipe", "nothing", "../outside/c.yaml"])
def test_an_unreadable_configuration_names_no_pool(tmp_path: Path, file: str) -> None:
    model = extracted(tmp_path / "model", configFile=file)
    (model / "folder").mkdir()
    (model / "dangling").symlink_to("nowhere")
    os.mkfifo(model / "pipe")
    assert shim.named_pool(str(model), {}) == ""


@pytest.mark.parametrize(
    "manifest", ['{"model": {"configFile": 1}}', '{"configFile": "c.yaml"}', "configFile", None]
)
def test_a_manifest_that_names_no_configuration_names_no_pool(tmp_path: Path, manifest: str | None) -> None:
    model = extracted(tmp_path)
    (model / "c.yaml").write_text("interpool: {pool: p}")
    if manifest is not None:
        (model / shim.MANIFEST).write_text(manifest)
    assert shim.named_pool(str(model), {}) == ""


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("model-config.json", '{"interpool": {"pool": "p"}}'),
        ("conf/model.yaml", "interpool: {pool: p}"),
        ("größe", "interpool:\n  pool: p\n"),
    ],
)
def test_the_file_that_the_manifest_names_names_the_pool(tmp_path: Path, file: str, text: str) -> None:
    model = extracted(tmp_path, configFile=file)
    (model / file).parent.mkdir(exist_ok=True)
    (model / file).write_text(text)
    assert shim.named_pool(str(model), {"python": sys.executable, "home": "/none"}) == "p"


def test_a_program_that_fails_to_read_the_pools_name_is_a_message(tmp_path: Path) -> None:
    """Else the model would share a process with others though its settings may forbid that."""
    model = extracted(tmp_path, configFile="c.yaml")
    (model / "c.yaml").write_text("interpool: {isolation: process}")
    with pytest.raises(shim.Refused, match="failed with status 1"):
        shim.named_pool(str(model), {"python": "/bin/false", "home": "/none"})


def _printing_first(path: Path) -> str:
    """A Python that prints at its start, as a site's sitecustomize may."""
    path.write_text(f'#!/bin/sh\necho "a banner"\nexec {sys.executable} "$@"\n')
    path.chmod(0o700)
    return str(path)


@pytest.mark.parametrize(("text", "pool"), [("interpool: {pool: p}", "p"), ("interpool: {}  # no pool", "")])
def test_output_of_a_python_at_its_start_is_no_pools_name(tmp_path: Path, text: str, pool: str) -> None:
    model = extracted(tmp_path / "model", configFile="c.yaml")
    (model / "c.yaml").write_text(text)
    record = {"python": _printing_first(tmp_path / "python"), "home": "/none"}
    assert shim.named_pool(str(model), record) == pool


def test_a_host_listens_though_its_python_prints_at_its_start(tmp_path: Path) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho a banner\necho listening\n")
    program.chmod(0o700)
    shim.start_host(os.getpid(), str(tmp_path), "p", str(program), dict(os.environ))
    program.write_text("#!/bin/sh\necho a banner\n")
    with pytest.raises(shim.Refused, match="did not start"):
        shim.start_host(os.getpid(), str(tmp_path), "p", str(program), dict(os.environ))


def test_the_handler_file_has_the_name_it_is_known_by() -> None:
    assert Path(str(interpool_handler.__file__)).stem == shim.HANDLER_STEM


def test_torchserves_arguments_are_understood() -> None:
    unix = shim.Arguments(
        ["--sock-type", "unix", "--sock-name", "/t/.ts.sock.9000", "--metrics-config", "/m.yaml"]
    )
    assert unix.address() == "unix:/t/.ts.sock.9000"
    assert (unix.metrics_config, unix.is_async) == ("/m.yaml", False)
    tcp = shim.Arguments(["--sock-type=tcp", "--port=9000", "--async"])
    assert (tcp.address(), tcp.is_async) == ("tcp:127.0.0.1:9000", True)
    with pytest.raises(shim.Refused, match="no socket to listen on"):
        shim.Arguments(["--sock-type", "unix"]).address()


def test_a_shim_imports_next_to_nothing() -> None:
    code = (
        "import os, sys, importlib.util as u;"  # os: every Python that is started without -S has it
        f"s = u.spec_from_file_location('shim', {shim.__file__!r});"
        "m = u.module_from_spec(s); now = set(sys.modules); s.loader.exec_module(m);"
        "print(sorted(set(sys.modules) - now))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
    )
    assert set(json.loads(done.stdout.replace("'", '"'))) <= {"__future__", "_socket", "fcntl"}


def test_a_private_directory_is_made_or_refused(tmp_path: Path) -> None:
    mine = tmp_path / "a" / "b"
    shim.make_private(str(mine))
    assert mine.stat().st_mode & 0o777 == 0o700
    mine.chmod(0o750)
    with pytest.raises(shim.Refused, match="mode 0700"):
        shim.make_private(str(mine))
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "a")
    with pytest.raises(shim.Refused, match="mode 0700"):
        shim.make_private(str(link))


def test_a_control_socket_is_reached_however_long_its_path(tmp_path: Path) -> None:
    from interpool.handler.host import control

    directory = tmp_path / ("x" * 150)
    directory.mkdir()
    with control.listen(directory) as listener:
        shim.connect_control(str(directory)).close()
        listener.accept()[0].close()
    with pytest.raises(ConnectionRefusedError):
        shim.connect_control(str(directory))


@contextlib.contextmanager
def _printing_to(output: Any) -> Iterator[int]:
    """A process that stands in for TorchServe's frontend."""
    with subprocess.Popen(["sleep", "1000"], stdout=output) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def test_a_log_goes_to_torchserves_output_if_that_is_asked_for_and_can_be_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERPOOL_LOG_TO", "stdout")
    read, write = os.pipe()
    with _printing_to(write) as frontend:
        path, descriptor = shim.open_log(frontend, str(tmp_path), "p")
        os.write(descriptor, b"a line")
        os.close(descriptor)
        assert path == shim.log_path(frontend, str(tmp_path), "p")
        assert os.read(read, 100) == b"a line"
    os.close(read)
    os.close(write)
    with (tmp_path / "appended").open("a") as file, _printing_to(file) as frontend:
        os.close(shim.open_log(frontend, str(tmp_path), "p")[1])
    own = tmp_path / "interpool_host_p.log"
    assert not own.exists()
    monkeypatch.setenv("LOG_LOCATION", str(tmp_path))
    ours, theirs = socket.socketpair()
    with ours, theirs, (tmp_path / "written").open("w") as file:
        for output in (ours, file):
            with _printing_to(output) as frontend:
                path, descriptor = shim.open_log(frontend, str(tmp_path), "p")
                os.close(descriptor)
                assert path == shim.log_path(frontend, str(tmp_path), "p") == str(own)
    assert "nothing that another process can append to" in own.read_text()


def test_a_process_is_distinguished_from_a_later_one_of_its_number() -> None:
    assert shim.process_start(os.getpid()).isdecimal()
    assert shim.process_start(2**22 + 1) == ""
    key = f"{os.getpid()}-{shim.process_start(os.getpid())}-{shim.system_key()}-p"
    assert shim.instance_key(os.getpid(), "p") == key
    with pytest.raises(shim.Refused, match="has ended"):
        shim.instance_key(2**22 + 1, "p")


@pytest.mark.parametrize(
    ("environment", "refusal"),
    [
        ({}, ""),
        ({"INTERPOOL_STOCK_ARCHIVES": "allow"}, ""),
        ({"INTERPOOL_SIGNATURE_KEYS": "/k.pem", "INTERPOOL_STOCK_ARCHIVES": "allow"}, ""),
        ({"INTERPOOL_SIGNATURE_KEYS": "/k.pem"}, "INTERPOOL_SIGNATURE_KEYS asks for signatures"),
        ({"INTERPOOL_SIGNATURE_KEYS": ""}, "INTERPOOL_SIGNATURE_KEYS asks for signatures"),
        ({"INTERPOOL_STOCK_ARCHIVES": "refuse"}, "INTERPOOL_STOCK_ARCHIVES=refuse"),
        ({"INTERPOOL_STOCK_ARCHIVES": "Allow"}, "must be allow or refuse, not 'Allow'"),
    ],
)
def test_stock_archives_are_refused_if_signatures_are_asked_for(
    environment: dict[str, str], refusal: str
) -> None:
    if not refusal:
        shim.refuse_stock(environment)
        return
    with pytest.raises(shim.Refused, match=refusal):
        shim.refuse_stock(environment)


def test_a_shim_that_may_have_run_an_archives_files_serves_nothing_signed() -> None:
    shim.require_isolation({})
    with pytest.raises(shim.Refused, match="Start it with `interpool serve`"):
        shim.require_isolation({"INTERPOOL_SIGNATURE_KEYS": "/k.pem"})


def test_a_host_imports_from_where_the_server_does_and_not_from_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, extra = tmp_path / "model", tmp_path / "extra"
    for directory in (model / "inside", extra):
        directory.mkdir(parents=True)
    monkeypatch.chdir(model)
    path = os.pathsep.join(["", ".", "inside", str(extra), str(model), str(model / "inside"), "/the/home"])
    monkeypatch.setattr(shim, "python_path_of", lambda *_: path.split(os.pathsep))
    environment = shim.host_environment({"home": "/the/home"})
    assert environment["PYTHONPATH"] == str(extra)


@contextlib.contextmanager
def _standby(
    address: str, program: str, successor: str = ""
) -> Iterator[tuple[socket.socket, subprocess.Popen[str]]]:
    """The host's end of a process that stands by for a worker: that program, or Python without one."""
    host, worker = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    code = (
        "import _socket, sys; from interpool.handler.frontend import shim;"
        f"control = _socket.socket(fileno={worker.fileno()}); path = {address.removeprefix('unix:')!r};"
        f"mine = shim.file_identity(path); how = {{'INTERPOOL_SUCCESSOR': {successor!r}, 'OF': 'the host'}};"
        f"shim.stand_by(control, path, mine, {{'standby': {program!r}}}, how);"
        "print('none', flush=True); sys.exit(shim.wait_for_end(control, path, mine, {}, {}))"
    )
    with (
        host,
        subprocess.Popen(
            [sys.executable, "-c", code],
            pass_fds=[worker.fileno()],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        worker.close()
        try:
            if program:
                wait_for(lambda: os.readlink(f"/proc/{process.pid}/exe") == program, "the program to run")
            else:
                assert process.stdout is not None
                assert process.stdout.readline() == "none\n"
            yield host, process
        finally:
            process.kill()


def _listening(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    return listener


STANDBY = pytest.mark.parametrize("program", [str(standby_path()), ""], ids=["program", "python"])


@STANDBY
def test_a_worker_that_gets_a_goodbye_ends_well(tmp_path: Path, program: str) -> None:
    path = tmp_path / "s"
    with _listening(path), _standby(f"unix:{path}", program) as (host, process):
        host.send(b"bye")
        assert process.wait(60) == 0
        assert path.exists()


@pytest.mark.long
@STANDBY
def test_a_worker_whose_host_is_gone_removes_its_socket_and_fails(tmp_path: Path, program: str) -> None:
    path = tmp_path / "with:colon and space"
    with _listening(path), _standby(f"unix:{path}", program) as (host, process):
        host.close()
        assert process.wait(60) == 1
        assert process.stderr is not None
        assert process.stderr.read() == (
            "interpool: the pool host is gone; TorchServe will restart this worker.\n"
        )
        assert not path.exists()


@pytest.mark.long
@STANDBY
def test_a_worker_leaves_the_next_ones_socket_alone(tmp_path: Path, program: str) -> None:
    path = tmp_path / "s"
    with _listening(path), _standby(f"unix:{path}", program) as (host, process):
        path.unlink()
        with _listening(path):
            host.close()
            assert process.wait(60) == 1
            assert path.exists()


def test_the_first_worker_whose_host_has_died_starts_the_next_one(tmp_path: Path) -> None:
    """Which has the lock until it listens: neither another worker's program nor a shim starts one besides."""
    lock, log, started = tmp_path / "lock", tmp_path / "log", tmp_path / "started"
    lock.touch()
    code = f"echo $OF $INTERPOOL_SUCCESSOR >>{started}; ls /proc/self/fd | wc -l >>{started}; echo said >&2; "
    code += f"flock -n {lock} true || echo locked >&2; cat"
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    how = "\x1f".join([str(lock), str(log), "/bin/sh", "-c", code + f" {gate}"])
    program = str(standby_path())
    with (
        _standby("tcp:127.0.0.1:9000", program, how) as (host, first),
        _standby("tcp:127.0.0.1:9001", program, how) as (other_host, second),
    ):
        host.close()
        assert first.wait(60) == 1
        wait_for(lambda: log.exists() and log.read_text() == "said\nlocked\n", "the next host")
        other_host.close()
        assert second.wait(60) == 1
        gate.write_text("")  # the next host ends
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
    assert started.read_text().split() == ["the", "host", "5"]  # 0 to 3, and what ls reads


def test_another_worker_starts_the_next_host_if_the_first_was_killed_before_it_did(tmp_path: Path) -> None:
    lock, log = tmp_path / "lock", tmp_path / "log"
    how = "\x1f".join([str(lock), str(log), "/bin/sh", "-c", "echo said >&2"])
    with (
        lock.open("w") as first,
        _standby("tcp:127.0.0.1:9000", str(standby_path()), how) as (host, process),
    ):
        fcntl.flock(first, fcntl.LOCK_EX)
        host.close()
        assert process.stderr is not None
        assert "the pool host is gone" in process.stderr.readline()  # it has tried
        first.close()
        assert process.wait(60) == 1
        wait_for(lambda: log.exists() and log.read_text() == "said\n", "the next host")


def test_a_complaint_has_been_read_before_the_workers_stdout_ends() -> None:
    """TorchServe reads its stderr no more from then on."""
    program = "from interpool.handler.frontend import shim; shim.complain('it cannot be')"
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        assert worker.stderr is not None
        assert select.select([worker.stderr], [], [], 60)[0]
        assert not select.select([worker.stdout], [], [], 0.5)[0]
        assert worker.stderr.readline() == "interpool: it cannot be\n"
        assert worker.stdout.readline() == "[METRICS]interpool: it cannot be\n"
        assert worker.wait(60) == 0


def _worker(
    directory: Path, handler: str, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """A worker of a model with that handler, by a copy of the shim in a directory; TorchServe's prints."""
    (directory / shim.OVERLAY_RECORD).write_text(f"ts={directory}\npython={sys.executable}\n")
    (directory / "shim.py").write_bytes(Path(shim.__file__).read_bytes())
    (directory / shim.WORKER_SCRIPT).write_text("print('served')\n")
    program = f"import sys; sys.path.insert(0, {str(directory)!r}); import shim; sys.exit(shim.main())"
    command = [sys.executable, "-c", program, *arguments]
    model = extracted(directory / "model", handler=handler)
    return subprocess.run(
        command, cwd=model, env={**os.environ, **environment}, capture_output=True, text=True
    )


def test_no_worker_starts_with_an_unknown_variable(tmp_path: Path) -> None:
    """Not even TorchServe's own: the variable may have been meant to refuse it."""
    done = _worker(tmp_path, "handler.py", INTERPOOL_STOCK_ARCHIVE="refuse")
    assert done.returncode == 1
    assert "INTERPOOL_STOCK_ARCHIVE (is it INTERPOOL_STOCK_ARCHIVES?)" in done.stderr
    assert "served" not in done.stdout


def test_a_lock_that_cannot_be_opened_is_a_message(tmp_path: Path) -> None:
    base = tmp_path / "runtime"
    lock = base / shim.instance_key(os.getpid(), shim.DEFAULT_POOL) / "lock"
    shim.make_private(str(base))
    shim.make_private(str(lock.parent))
    lock.mkdir()
    arguments = ("--sock-type=unix", "--sock-name=/s")
    done = _worker(tmp_path, "interpool_handler.py", *arguments, INTERPOOL_RUNTIME_DIR=str(base))
    assert done.returncode == 1
    said = f"interpool: this worker cannot start: {lock}: Is a directory. TorchServe will try it again\n"
    assert (done.stderr, done.stdout) == (said, f"[METRICS]{said}")


@pytest.mark.skipif(os.getuid() == 0, reason="root may write to every file")
def test_a_log_of_another_users_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOG_LOCATION", raising=False)
    monkeypatch.chdir(tmp_path)
    theirs = tmp_path / "logs" / "interpool_host_p.log"
    theirs.parent.mkdir()
    theirs.touch(mode=0)
    assert shim.log_path(os.getpid(), str(tmp_path), "p") == str(tmp_path / theirs.name)
