"""The home that a server has for itself: held by those that have its descriptor, removed afterwards."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from interpool.handler.errors import OverlayError
from interpool.handler.frontend.server_home import lives_in, make_server_home, remove_ended


def test_a_servers_home_lives_as_long_as_a_process_has_it_as_standard_input(tmp_path: Path) -> None:
    home, held = make_server_home(tmp_path)
    assert (home / "ts" / "model_service_worker.py").is_file()
    assert home.stat().st_mode & 0o777 == 0o700
    with subprocess.Popen(["sleep", "1000"], stdin=held) as server:
        os.close(held)
        remove_ended(tmp_path)
        assert lives_in(tmp_path)
        assert home.is_dir()
        server.kill()
    assert not lives_in(tmp_path)
    remove_ended(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_homes_shim_runs_without_a_cache(tmp_path: Path) -> None:
    home, held = make_server_home(tmp_path)
    done = subprocess.run(
        [sys.executable, str(home / "ts" / "model_service_worker.py"), "--sock-type", "unix"],
        env={"INTERPOOL_CACHE": str(tmp_path / "none"), "INTERPOOL_STOCK_ARCHIVES": "refuse"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert "this model is refused" in done.stderr
    assert not (tmp_path / "none").exists()
    os.close(held)


def test_a_directory_that_is_none_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(OverlayError, match=r"make that directory writable, or set TEMP to another one"):
        make_server_home(tmp_path / "gone")
    (tmp_path / "site-packages").mkdir()
    with pytest.raises(OverlayError, match=r"set TEMP to another directory"):
        make_server_home(tmp_path / "site-packages")


def test_a_home_that_cannot_be_filled_is_removed(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        with pytest.raises(OverlayError, match=r"cannot make the server's home"):
            make_server_home(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


def test_a_home_without_its_file_was_left_by_a_killed_process_if_it_is_old(tmp_path: Path) -> None:
    home = tmp_path / "interpool-server-abc"
    home.mkdir()
    remove_ended(tmp_path)
    assert lives_in(tmp_path)  # a process may be about to make that file
    os.utime(home, (0, 0))
    assert not lives_in(tmp_path)
    remove_ended(tmp_path)
    assert list(tmp_path.iterdir()) == []
