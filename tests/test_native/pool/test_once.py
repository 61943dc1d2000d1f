"""Work that one interpreter does for all that have opened the same archive."""

from __future__ import annotations

import struct
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from proving import build_archive

from interpool.native import InterpreterManager
from interpool.native.errors import RemoteError


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return build_archive(tmp_path / "once.ptpkg", tmp_path / "canary")


def in_each(manager: InterpreterManager, *arguments: Any) -> list[Any]:
    """What each interpreter returns or raises, asked all at once."""

    def ask(instance: Any) -> Any:
        with instance.acquire_session(timeout=60) as session:
            try:
                return session.global_("once_work", "do_once")(*arguments).to_value()
            except RemoteError as error:
                return error.message

    instances = manager.all_instances()
    with ThreadPoolExecutor(len(instances)) as threads:
        return list(threads.map(ask, instances))


def test_interpreters_that_ask_at_once_wait_for_one_and_hear_its_result(
    manager: InterpreterManager, archive: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    assert in_each(manager, str(archive), str(log), 0.5, False) == ["größe"] * 4
    assert in_each(manager, str(archive), str(log), 0.0, True) == ["größe"] * 4
    assert log.read_text() == "done\n"


def test_the_next_interpreter_does_what_one_has_not_done(
    manager: InterpreterManager, archive: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    assert in_each(manager, str(archive), str(log), 0.05, True) == ["not today"] * 4
    assert log.read_text() == "done\n" * 4
    assert in_each(manager, str(archive), str(log), 0.0, False) == ["größe"] * 4
    assert log.read_text() == "done\n" * 5


def test_a_turn_that_an_interruption_loses_is_the_next_ones(
    manager: InterpreterManager, archive: Path, tmp_path: Path
) -> None:
    """It may come as the turn is handed over, when no thread can give it back."""
    with manager.acquire_session(timeout=60) as session:
        assert session.global_("once_work", "lose_turn")(str(archive)).to_value()
    assert in_each(manager, str(archive), str(tmp_path / "log"), 0.0, False) == ["größe"] * 4


def test_another_state_of_the_file_is_another_matter(
    manager: InterpreterManager, archive: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    other = tmp_path / "other.ptpkg"
    other.write_bytes(archive.read_bytes())
    for path in (archive, other):
        assert in_each(manager, str(path), str(log), 0.0, False) == ["größe"] * 4
    assert log.read_text() == "done\n" * 2


def test_code_that_runs_is_read_as_the_checked_bytes(manager: InterpreterManager, archive: Path) -> None:
    """Two readers of one zip may find different bytes; digests and code come from the same one."""
    with zipfile.ZipFile(archive) as file:
        info = file.getinfo("once/proving_model.py")
        source = file.read(info)
    data = bytearray(archive.read_bytes())
    data[info.header_offset + 14 : info.header_offset + 18] = struct.pack("<I", 0)  # another checksum
    archive.write_bytes(data)
    with manager.acquire_session(timeout=60) as session:
        read = session.global_("once_work", "record")(str(archive), "proving_model.py").to_value()
    assert bytes(read) == source
