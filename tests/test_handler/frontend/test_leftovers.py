"""What a killed server has extracted goes when the next one starts, and nothing of a living one's."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from waiting import wait_for

from interpool.handler.frontend.leftovers import remove_leftovers, temporary_directory
from interpool.handler.torchserve import FRONTEND_CLASS


def _extracted(directory: Path, letter: str) -> Path:
    model = directory / "models" / (letter * 32)
    (model / "MAR-INF").mkdir(parents=True)
    (model / "MAR-INF" / "MANIFEST.json").touch()
    return model


def _age(path: Path) -> float:
    return path.lstat().st_ctime


def test_extracted_models_of_no_living_server_are_removed(tmp_path: Path) -> None:
    model = _extracted(tmp_path, "a")
    elsewhere = tmp_path / "store"
    elsewhere.mkdir()
    linked = tmp_path / "models" / ("b" * 32)
    linked.symlink_to(elsewhere)  # a model that is no archive
    download = tmp_path / "models123.download"
    download.touch()
    others = [tmp_path / "models" / "mine", tmp_path / "models.download", tmp_path / ("c" * 32)]
    for other in others:
        other.touch()
    assert set(remove_leftovers(tmp_path)) == {model, linked, download}
    assert elsewhere.is_dir()
    assert all(other.exists() for other in others)
    assert sorted(path.name for path in (tmp_path / "models").iterdir()) == ["mine"]


def test_what_a_living_server_may_have_extracted_stays(tmp_path: Path) -> None:
    old = _extracted(tmp_path, "a")
    wait_for(lambda: _age(Path(_touched(tmp_path))) > _age(old) + 2, "a server that is younger")
    command = ["-c", "read -r _", FRONTEND_CLASS, f"-Djava.io.tmpdir={tmp_path}"]
    with subprocess.Popen(["/bin/sh", *command], stdin=subprocess.PIPE) as server:
        arguments = Path(f"/proc/{server.pid}/cmdline")
        wait_for(lambda: FRONTEND_CLASS.encode() in arguments.read_bytes(), "its start")
        new = _extracted(tmp_path, "b")
        assert remove_leftovers(tmp_path) == [old]
        assert new.is_dir()
        server.communicate(b"\n")
    assert remove_leftovers(tmp_path) == [new]


def _touched(directory: Path) -> str:
    clock = directory / "clock"
    clock.touch()
    os.chmod(clock, 0o600)
    return str(clock)


def test_where_nothing_was_extracted_nothing_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert remove_leftovers(tmp_path / "none") == []
    target = tmp_path / "elsewhere"
    target.mkdir()
    _extracted(target, "a")
    (tmp_path / "models").symlink_to(target / "models")  # somebody else's way into another directory
    assert remove_leftovers(tmp_path) == []
    monkeypatch.setenv("TEMP", "/there")
    assert temporary_directory() == Path("/there")
    monkeypatch.delenv("TEMP")
    assert temporary_directory() == Path("/tmp")
