"""Making a bundle: what is refused, and that nothing stays of what failed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from interpool.native.bundle import make
from interpool.native.bundle.make import make_bundle
from interpool.native.errors import ProvisioningError


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_an_existing_bundle_is_not_replaced(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "bundle"
    if kind == "file":
        target.touch()
    elif kind == "folder":
        target.mkdir()
        (target / "mine").touch()
    else:
        target.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ProvisioningError, match=f"{target} is there already"):
        make_bundle(target, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


def test_a_module_that_is_not_installed_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(ProvisioningError, match="no_such_module_42 is not installed"):
        make_bundle(tmp_path / "new" / "bundle", 1, ["no_such_module_42"])
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_full_is_an_error_that_names_the_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(*_: object) -> make.Made:
        raise OSError(28, "No space left on device", "some/file")

    monkeypatch.setattr(make, "_fill", fill)
    with pytest.raises(
        ProvisioningError, match=r"bundle cannot be written: some/file No space left on device"
    ):
        make_bundle(tmp_path / "bundle", 1)
    assert list(tmp_path.iterdir()) == []


def test_a_command_that_names_a_bundle_and_a_prepared_file_makes_neither(tmp_path: Path) -> None:
    command = [str(Path(sys.executable).with_name("interpool")), "prepare", "--bundle", "b", "--output", "p"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert "--bundle and --output are different things to make" in done.stderr
    assert list(tmp_path.iterdir()) == []
