"""A server's home that was removed is made again."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from interpool.handler.frontend.server_home import make_server_home
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


def test_a_home_that_is_gone_is_made_again_and_removed_with_its_server(home: Path) -> None:
    host = ServerHome()
    shutil.rmtree(home)
    host.look()
    assert _is_whole(home)
    host.leave()
    assert not home.exists()


def test_a_host_that_leaves_with_its_server_leaves_the_home_to_a_process_that_holds_it(home: Path) -> None:
    ServerHome().leave()
    assert _is_whole(home)
