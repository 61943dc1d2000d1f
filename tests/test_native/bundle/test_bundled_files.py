"""Which files of site-packages go into a bundle."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from interpool.native.bundle import bundled_files
from interpool.native.bundle.bundled_files import choose
from interpool.native.errors import ProvisioningError


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Site-packages of this test, with nothing that is always taken."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(bundled_files, "_ALWAYS", ())
    return folder


def install(site: Path, name: str, files: dict[str, str], *requires: str) -> None:
    """A distribution as pip leaves it."""
    info = f"{name.replace('-', '_')}-1.0.dist-info"
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0"]
    metadata += [f"Requires-Dist: {each}" for each in requires]
    files = {
        **files,
        f"{info}/METADATA": "\n".join(metadata) + "\n",
        f"{info}/licenses/LICENSE": "free",
        f"{info}/direct_url.json": "{}",
    }
    for path, text in files.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text)
    (site / info / "RECORD").write_text("".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"]))


def names(*imports: str) -> set[str]:
    return {part.name for part in choose(imports).parts}


def test_a_module_brings_its_distribution_with_its_license(site: Path) -> None:
    install(site, "bundled-one", {"bundled_one/__init__.py": "", "bundled_one/data.bin": "x"})
    assert names("bundled_one") == {
        "bundled_one/__init__.py",
        "bundled_one/data.bin",
        "bundled_one-1.0.dist-info/METADATA",
        "bundled_one-1.0.dist-info/licenses/LICENSE",
    }
    assert choose(["bundled_one.part"]).versions == {"bundled-one": "1.0"}


def test_a_distribution_brings_its_requirements_and_theirs(site: Path) -> None:
    install(site, "bundled-one", {"bundled_one.py": ""}, "Bundled_Two[fast]>=1", 'absent; extra == "more"')
    others = 'bundled-three; extra == "fast"', "not-installed", "invalid>=1.0.*"
    install(site, "bundled-two", {"bundled_two.py": ""}, *others)
    install(site, "bundled-three", {"bundled_three.py": ""}, "bundled-one")
    install(site, "bundled-four", {"bundled_four.py": ""})
    found = names("bundled_one")
    assert {"bundled_one.py", "bundled_two.py", "bundled_three.py"} <= found
    assert "bundled_four.py" not in found


def test_a_module_that_is_not_installed_is_named(site: Path) -> None:
    message = f"no_such_module_42.part is not installed for {sys.executable}"
    with pytest.raises(ProvisioningError, match=re.escape(message)):
        choose(["no_such_module_42.part"])
