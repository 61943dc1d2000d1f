"""Holding what is used of the cache: what is held is what stands there now, also after a removal."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from interpool.native.provision import holding
from interpool.native.provision.holding import SET, Holder, file_byte, is_held, slot_byte, unheld


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    found = tmp_path / "set"
    found.mkdir(mode=0o700)
    return found


@pytest.fixture
def hold(directory: Path) -> Iterator[Callable[[], Holder]]:
    """Makes holders of the set, and gives up what they hold in the end."""
    made: list[Holder] = []

    def make() -> Holder:
        made.append(Holder(directory))
        return made[-1]

    yield make
    for each in made:
        each.release()


def is_free(directory: Path, byte: int | None = None) -> bool:
    with unheld(directory, byte) as found:
        return found


def test_each_part_of_the_cache_is_held_alone(directory: Path, hold: Callable[[], Holder]) -> None:
    assert not is_held(directory)
    assert is_free(directory)
    one, another = hold(), hold()
    one.hold(slot_byte(3))
    one.hold(file_byte("a"))
    assert is_held(directory)
    bytes_ = (None, SET, slot_byte(3), file_byte("a"), slot_byte(2), slot_byte(4), file_byte("b"))
    assert [is_free(directory, byte) for byte in bytes_] == [False] * 4 + [True] * 3
    another.hold(slot_byte(3))
    one.release()
    assert [is_free(directory, byte) for byte in bytes_] == [False] * 3 + [True] * 4
    another.release()
    assert not is_held(directory)
    assert is_free(directory)


def test_a_cache_that_cannot_be_written_can_be_held(
    directory: Path, monkeypatch: pytest.MonkeyPatch, hold: Callable[[], Holder]
) -> None:
    assert is_free(directory)
    stock = os.open

    def read_only(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_RDWR:
            raise OSError(errno.EROFS, "Read-only file system")
        return stock(path, flags, mode)

    monkeypatch.setattr(os, "open", read_only)
    hold()
    monkeypatch.undo()
    assert is_held(directory)


def test_a_process_goes_on_if_nothing_can_be_locked(tmp_path: Path) -> None:
    (tmp_path / "set").touch()
    holder = Holder(tmp_path / "set")
    holder.hold(slot_byte(1))
    assert not is_held(tmp_path / "set")


def test_a_set_that_was_replaced_before_it_is_locked_is_not_free(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hold: Callable[[], Holder]
) -> None:
    stock = holding._open

    def open_too_early(path: str) -> int:
        monkeypatch.setattr(holding, "_open", stock)
        descriptor = stock(path)
        directory.rename(tmp_path / "removed")
        hold()
        return descriptor

    monkeypatch.setattr(holding, "_open", open_too_early)
    with unheld(directory) as free:
        assert not free


def test_a_descriptor_that_other_code_closed_is_not_taken_for_ours(
    directory: Path, hold: Callable[[], Holder]
) -> None:
    holder = hold()
    holder.hold(slot_byte(1))
    number = holder._descriptor
    os.close(number)
    with open(os.devnull, "rb") as other:
        os.dup2(other.fileno(), number)
    assert not is_held(directory)
    holder.hold(slot_byte(2))
    assert not is_free(directory, slot_byte(1))
    os.close(number)  # it is still open: it was not closed in between
