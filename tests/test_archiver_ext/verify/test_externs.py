"""What an archive takes from its server: there or not, and in which version."""

from __future__ import annotations

import sys
from importlib import metadata
from typing import Any, cast

import pytest

from interpool.archiver_ext.verify.externs import check_externs
from interpool.native.archive.format import Manifest, Origin
from interpool.native.errors import ExternError

HERE = ".".join(map(str, sys.version_info[:3]))


def manifest(*externs: tuple[str, str, str], python: str = HERE, modules: Any = None) -> Manifest:
    keys = ("module", "distribution", "version")
    found = {
        "made_with": {"python": python, "torch": "2.13.0", "interpool": "0.1.0"},
        "externs": [dict(zip(keys, extern, strict=True)) for extern in externs],
        "modules": modules or {},
    }
    return cast("Manifest", found)


def test_the_installed_versions_are_usable() -> None:
    here = [(name, name, metadata.version(name)) for name in ("torch", "numpy", "click")]
    assert check_externs("m", manifest(*here)) == []


@pytest.mark.parametrize(
    ("name", "installed", "made_with", "warned"),
    [
        ("click", "8.1.7", "8.3.0", False),
        ("click", "8.1.7", "7.9", True),
        ("regex", "2026.1.15", "2024.11.6", True),
        ("some", "0.5.1", "0.5.9", False),
        ("some", "0.6.0", "0.5.9", True),
        ("some", "1.0.post1", "1.2+cu12", False),
        ("some", "unknown", "1.0", True),
    ],
)
def test_another_major_version_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, name: str, installed: str, made_with: str, warned: bool
) -> None:
    monkeypatch.setattr(metadata, "version", lambda _: installed)
    warnings = check_externs("m", manifest((name, name, made_with)))
    assert bool(warnings) is warned
    said = f"{name} is here in version {installed}, and the archive was made with {made_with}"
    assert warnings in ([], [f"[extern-version] {said}"])


@pytest.mark.parametrize(
    ("made_with", "usable"), [("2.13.1+cu130", True), ("2.12.0", False), ("3.13.0", False)]
)
def test_torch_must_be_of_the_same_minor_version(
    monkeypatch: pytest.MonkeyPatch, made_with: str, usable: bool
) -> None:
    monkeypatch.setattr(metadata, "version", lambda _: "2.13.0+cpu")
    made = manifest(("torch", "torch", made_with))
    if usable:
        assert check_externs("m", made) == []
        return
    with pytest.raises(ExternError, match=f"pip install 'torch=={made_with}'") as caught:
        check_externs("m", made)
    assert caught.value.rule == "extern-version"


def test_all_that_is_missing_is_named_with_the_command_that_brings_it() -> None:
    missing = [("nowhere", "nowhere-at-all", "1.2"), ("nobody", "nobody-either", "0.3+local")]
    with pytest.raises(ExternError) as caught:
        check_externs("m.ptpkg", manifest(*missing))
    assert caught.value.rule == "extern-missing"
    assert str(caught.value) == (
        "m.ptpkg: nowhere-at-all, which brings module nowhere, is not installed; nobody-either, which "
        "brings module nobody, is not installed. Install what it was made with: pip install "
        "'nowhere-at-all==1.2' 'nobody-either==0.3' [extern-missing]"
    )


def test_another_python_is_a_warning_and_a_module_that_it_lacks_an_error() -> None:
    (warning,) = check_externs("m", manifest(python="3.8.19"))
    assert warning.startswith("[python-version] made with Python 3.8.19, and this is")
    origin, why = Origin.STANDARD_LIBRARY, "any reason"
    gone = {"asynchat_of_old": {"action": "extern", "origin": origin, "reason": why, "imported_by": []}}
    with pytest.raises(ExternError, match=r"has no module asynchat_of_old, which Python 3\.8\.19 had"):
        check_externs("m", manifest(python="3.8.19", modules=gone))
