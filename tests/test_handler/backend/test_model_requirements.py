from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from interpool.handler.backend.model_requirements import make_importable

ASKED = {"model": {"requirementsFile": "requirements.txt"}}


@pytest.fixture(autouse=True)
def _same_path() -> Iterator[None]:
    before = list(sys.path)
    yield
    sys.path[:] = before


def model(path: Path, installed: bool = True) -> str:
    path.mkdir()
    if installed:
        (path / "tool-1.0.dist-info").mkdir()
    return str(path)


def test_packages_that_pip_installed_come_last_on_the_path(tmp_path: Path) -> None:
    directory = model(tmp_path / "m")
    make_importable(directory, ASKED)
    make_importable(directory, ASKED)
    assert sys.path[-1] == directory
    assert sys.path.count(directory) == 1


def test_no_other_models_directory_is_importable(tmp_path: Path) -> None:
    before = list(sys.path)
    make_importable(model(tmp_path / "unasked"), {"model": {}})
    make_importable(model(tmp_path / "unknown"), None)
    make_importable(model(tmp_path / "not-installed", installed=False), ASKED)
    assert sys.path == before


def test_a_model_that_is_gone_is_forgotten(tmp_path: Path) -> None:
    gone, next_one = model(tmp_path / "gone"), model(tmp_path / "next")
    make_importable(gone, ASKED)
    shutil.rmtree(gone)
    make_importable(next_one, ASKED)
    assert gone not in sys.path
    assert sys.path[-1] == next_one


def test_a_models_virtual_environment_is_importable_too(tmp_path: Path) -> None:
    directory = model(tmp_path / "m", installed=False)
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    site = Path(directory, "venv", "lib", version, "site-packages")
    (site / "tool-1.0.dist-info").mkdir(parents=True)
    make_importable(directory, {"model": {}})
    assert str(site) not in sys.path
    make_importable(directory, ASKED)
    assert sys.path[-1] == str(site)
