"""A bundle finds the licenses of the system's libraries in the packages that installed them."""

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
