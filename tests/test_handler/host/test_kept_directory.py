"""A model's directory is put back as it was before its trial."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from interpool.handler.host.kept_directory import KeptDirectory

LARGE = b"x" * (2 << 20)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    directory = tmp_path / "models" / "abc"
    (directory / "sub" / "deep").mkdir(parents=True)
    (directory / "code.zip").write_bytes(b"zip")
    (directory / "weights.pt").write_bytes(LARGE)
    (directory / "sub" / "deep" / "labels.txt").write_text("a b")
    (directory / "link").symlink_to("code.zip")
    os.chmod(directory / "code.zip", 0o640)
    return directory


def tree(directory: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for path in sorted(directory.rglob("*")):
        name = str(path.relative_to(directory))
        if path.is_symlink():
            found[name] = os.readlink(path)
        elif path.is_file():
            found[name] = path.read_bytes(), path.stat().st_mode, path.stat().st_mtime_ns
        else:
            found[name] = None
    return found


def use_up(directory: Path) -> None:
    """What handlers do when they are loaded, and more."""
    (directory / "code.zip").unlink()
    (directory / "weights.pt").rename(directory / "moved.pt")
    (directory / "sub" / "deep" / "labels.txt").write_text("other")
    (directory / "sub" / "deep").rename(directory / "brain")
    (directory / "brain" / "core.py").write_text("x = 1")
    (directory / "link").unlink()
    (directory / "link").mkdir()


def test_what_a_load_used_up_is_there_again(model: Path) -> None:
    before = tree(model)
    with KeptDirectory(str(model)) as kept:
        use_up(model)
        kept.put_back()
        assert tree(model) == before
    assert tree(model) == before
    assert os.listdir(model.parent) == ["abc"]


def test_what_a_load_left_stays_if_the_pool_serves_it(model: Path) -> None:
    with KeptDirectory(str(model)):
        use_up(model)
        after = tree(model)
    assert tree(model) == after
    assert os.listdir(model.parent) == ["abc"]


def test_a_directory_that_was_removed_is_made_again(model: Path) -> None:
    before = tree(model)
    with KeptDirectory(str(model)) as kept:
        model.rename(model.parent / "elsewhere")
        kept.put_back()
        assert tree(model) == before


def test_weights_take_no_room_twice(model: Path) -> None:
    with KeptDirectory(str(model)):
        assert (model / "weights.pt").stat().st_nlink == 2
    assert (model / "weights.pt").stat().st_nlink == 1


def test_of_a_folder_that_is_its_owners_nothing_is_kept(model: Path) -> None:
    link = model.parent / "link"
    link.symlink_to(model)
    with KeptDirectory(str(link)) as kept:
        (model / "code.zip").unlink()
        kept.put_back()
    assert not (model / "code.zip").exists()
    assert link.is_symlink()
