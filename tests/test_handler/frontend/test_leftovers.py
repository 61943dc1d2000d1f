"""What a killed server has extracted goes when the next one starts, and nothing beside a living one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from extracted import extracted
from pid_namespaces import start_in_another_pid_namespace
from waiting import wait_for

from interpool.handler.frontend.leftovers import KEPT, remove_leftovers, temporary_directory
from interpool.handler.torchserve import FRONTEND_CLASS


def _extracted(directory: Path, letter: str) -> Path:
    return extracted(directory / "models" / (letter * 32))


def test_extracted_models_of_no_living_server_are_removed(tmp_path: Path) -> None:
    model = _extracted(tmp_path, "a")
    elsewhere = extracted(tmp_path / "store")
    linked = tmp_path / "models" / ("b" * 32)
    linked.symlink_to(elsewhere)  # a model that is no archive
    download = tmp_path / "models123.download"
    download.touch()
    others = [tmp_path / "models" / "mine", tmp_path / "models.download", tmp_path / ("c" * 32)]
    for other in others:
        other.touch()
    assert set(remove_leftovers(tmp_path)) == {model, linked, download}
    assert (elsewhere / "MAR-INF").is_dir()
    assert all(other.exists() for other in others)
    assert sorted(path.name for path in (tmp_path / "models").iterdir()) == ["mine"]


def test_files_that_a_host_kept_of_a_model_are_removed_with_the_models(tmp_path: Path) -> None:
    """Its next host would have removed it, but the server has ended with it."""
    kept = tmp_path / "models" / f"{KEPT}{'a' * 32}"
    (kept / "kept").mkdir(parents=True)
    assert remove_leftovers(tmp_path) == [kept]
    assert not kept.exists()


def test_paths_named_like_an_extracted_model_that_are_none_stay(tmp_path: Path) -> None:
    others = [tmp_path / "models" / (letter * 32) for letter in "abc"]
    others[0].mkdir(parents=True)
    (others[0] / "weights.pt").touch()
    others[1].symlink_to(others[0])
    others[2].symlink_to(tmp_path / "gone")
    assert remove_leftovers(tmp_path) == []
    assert sorted((tmp_path / "models").iterdir()) == others
    assert (others[0] / "weights.pt").exists()


def test_nothing_is_removed_beside_a_living_server(tmp_path: Path) -> None:
    """Not even what is older than that server: if a clock was set, an age says nothing of the owner."""
    model = _extracted(tmp_path, "a")
    command = ["-c", "read -r _", FRONTEND_CLASS, f"-Djava.io.tmpdir={tmp_path}"]
    with subprocess.Popen(["/bin/sh", *command], stdin=subprocess.PIPE) as server:
        arguments = Path(f"/proc/{server.pid}/cmdline")
        wait_for(lambda: FRONTEND_CLASS.encode() in arguments.read_bytes(), "its start")
        assert remove_leftovers(tmp_path) == []
        assert model.is_dir()
        server.communicate(b"\n")
    assert remove_leftovers(tmp_path) == [model]


SERVER = """
import sys
from pathlib import Path
from interpool.handler.frontend.server_home import make_server_home
held = make_server_home(Path(sys.argv[1]))
print(flush=True)
input()
"""
WORKER = """
import sys
from interpool.handler.frontend import shim
shim.hold_extracted(sys.argv[1] + "/models/any")
print(flush=True)
input()
"""


@pytest.mark.parametrize("source", [SERVER, WORKER], ids=["server", "worker"])
def test_nothing_is_removed_beside_a_server_of_another_container(tmp_path: Path, source: str) -> None:
    """No process of it is to be seen: it may have been started by `interpool serve`, or have workers."""
    model = _extracted(tmp_path, "a")
    with start_in_another_pid_namespace(source, tmp_path) as other:
        assert other.stdout is not None
        other.stdout.readline()
        assert remove_leftovers(tmp_path) == []
        assert model.is_dir()
        other.communicate("\n")
    assert remove_leftovers(tmp_path) == [model]
    assert [path.name for path in tmp_path.iterdir()] == ["models"]


def test_nothing_is_removed_if_nothing_was_extracted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert remove_leftovers(tmp_path / "none") == []
    target = tmp_path / "elsewhere"
    target.mkdir()
    _extracted(target, "a")
    (tmp_path / "models").symlink_to(target / "models")  # an attacker's way into another directory
    assert remove_leftovers(tmp_path) == []
    monkeypatch.setenv("TEMP", "/there")
    assert temporary_directory() == Path("/there")
    monkeypatch.delenv("TEMP")
    assert temporary_directory() == Path("/tmp")
