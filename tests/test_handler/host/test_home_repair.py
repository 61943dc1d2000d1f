"""A server's home that was removed is made again, and stays as long as the server."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from interpool.handler.frontend.server_home import make_server_home, remove_ended
from interpool.handler.host.home_repair import ServerHome
from interpool.handler.torchserve import HOME_VARIABLE


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The home of a process that lives, as TorchServe would."""
    home, held = make_server_home(tmp_path)
    monkeypatch.setenv(HOME_VARIABLE, str(home))
    with subprocess.Popen(["sleep", "1000"], stdin=held) as server:
        os.close(held)
        yield home
        server.kill()


def _is_whole(home: Path) -> bool:
    return (home / "ts" / "model_service_worker.py").is_file()


def test_a_home_that_was_made_again_stays_when_its_host_leaves_before_the_server(home: Path) -> None:
    host = ServerHome()
    shutil.rmtree(home)
    host.look()
    host.leave(server_is_gone=False)
    assert _is_whole(home)


def test_the_next_host_holds_a_home_that_was_made_again(home: Path) -> None:
    killed = ServerHome()
    shutil.rmtree(home)
    killed.look()
    successor = ServerHome()
    killed.leave(server_is_gone=False)
    remove_ended(home.parent)  # as the next `interpool serve` does
    assert _is_whole(home)
    successor.leave(server_is_gone=True)
    assert not home.exists()


def test_each_host_holds_a_home_that_one_of_them_made_again(home: Path) -> None:
    one, other = ServerHome(), ServerHome()
    shutil.rmtree(home)
    one.look()
    other.look()
    one.leave(server_is_gone=False)
    remove_ended(home.parent)
    assert _is_whole(home)
    other.leave(server_is_gone=True)
    assert not home.exists()


def test_a_home_that_lost_only_the_file_to_hold_is_held_again(home: Path) -> None:
    host = ServerHome()
    (home / "held").unlink()
    host.look()
    os.utime(home, (0, 0))
    remove_ended(home.parent)
    assert _is_whole(home)
    host.leave(server_is_gone=True)


def test_a_host_that_leaves_with_its_server_leaves_the_home_to_a_process_that_holds_it(home: Path) -> None:
    ServerHome().leave(server_is_gone=True)
    assert _is_whole(home)
