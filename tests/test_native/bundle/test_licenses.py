"""Licenses of the system's libraries, from whoever has installed them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from interpool.native.bundle.licenses import copy_licenses
from interpool.native.provision.system_libraries import system_library


@pytest.mark.skipif(shutil.which("dpkg-query") is None, reason="no dpkg")
def test_a_library_of_the_system_brings_its_packages_license(tmp_path: Path) -> None:
    library = system_library("libz.so.1")
    assert library is not None
    found = copy_licenses({"libz.so.1": Path(library)}, tmp_path / "licenses")
    assert found == {"libz.so.1": ["licenses/zlib1g/copyright"]}
    assert "Jean-loup Gailly" in (tmp_path / "licenses/zlib1g/copyright").read_text()


def test_a_library_of_no_package_has_none(tmp_path: Path) -> None:
    library = tmp_path / "libown.so"
    library.touch()
    assert copy_licenses({"libown.so": library}, tmp_path / "licenses") == {"libown.so": []}
    assert not (tmp_path / "licenses").exists()


def test_rpm_is_asked_where_there_is_no_dpkg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = tmp_path / "usr/share/licenses/own"
    texts.mkdir(parents=True)
    (texts / "COPYING").write_text("free")
    rpm = tmp_path / "bin/rpm"
    rpm.parent.mkdir()
    rpm.write_text(
        f'#!/bin/sh\n[ "$4" = {tmp_path}/libown.so ] && echo {texts}/COPYING && echo {texts}/GONE\n'
    )
    rpm.chmod(0o755)
    monkeypatch.setenv("PATH", str(rpm.parent))
    (tmp_path / "libown.so").touch()
    found = copy_licenses({"libown.so": tmp_path / "libown.so"}, tmp_path / "licenses")
    assert found == {"libown.so": ["licenses/own/COPYING"]}
    assert (tmp_path / "licenses/own/COPYING").read_text() == "free"
