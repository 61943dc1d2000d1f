"""The place of the list of what was made ahead; C++ programs show its content (test_cpp_api.py)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from interpool.native.errors import ProvisioningError, RemoteError
from interpool.native.pool import prepare as prepare_module
from interpool.native.pool.prepare import prepare
from interpool.native.pool.prepared_file import write_prepared


def test_prepare_refuses_an_output_that_cannot_be_written_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare_module, "_extensions", lambda _folder: pytest.fail("it has begun"))
    (tmp_path / "file").touch()
    with pytest.raises(ProvisioningError, match=r"cannot write .*/file/below\.txt.*--output"):
        prepare(tmp_path / "file" / "below.txt", 1)
    with pytest.raises(ProvisioningError, match=r"cannot write .*: it is a directory.*--output"):
        prepare(tmp_path, 1)


@pytest.mark.parametrize("name", ["", ".models"])
def test_a_name_that_can_be_no_module_is_refused(name: str) -> None:
    with pytest.raises(ProvisioningError, match=f"'{name}' is not the name of a module"):
        prepare_module.installed(name)


def test_a_file_that_cannot_be_replaced_is_named(tmp_path: Path) -> None:
    (tmp_path / "folder.txt").mkdir()
    with pytest.raises(ProvisioningError, match=r"cannot write .*/folder\.txt: Is a directory.*--output"):
        write_prepared(tmp_path / "folder.txt", {}, [], {}, {})
    assert [path.name for path in tmp_path.iterdir()] == ["folder.txt"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_the_list_may_be_written_for_another_user(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    os.chown(folder, 12345, 12345)
    assert prepare(folder / "new" / "prepared.txt", 1) > 0
    assert (folder / "new" / "prepared.txt").read_text().startswith("interpool-prepared")


def test_a_failed_start_leaves_no_folder_behind(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    with pytest.raises(ProvisioningError, match="no_such_module_42 is not installed"):
        prepare(tmp_path / "there" / "new" / "folder" / "prepared.txt", 1, ["no_such_module_42"])
    assert list((tmp_path / "there").iterdir()) == []
    with pytest.raises(RemoteError, match="antigravity_42"):
        prepare(tmp_path / "new" / "prepared.txt", 1, ["json.antigravity_42"])
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
