"""Options of packing, as keyword arguments."""

from __future__ import annotations

import inspect
from dataclasses import fields
from pathlib import Path

import pytest

from interpool.archiver_ext.packing.options import PackKeywords
from interpool.archiver_ext.packing.pack import pack

GIVEN = ("x.json", "/else/where.pt", "m:inputs", "", None)


def test_the_help_of_pack_names_every_option() -> None:
    options = [field.name for field in fields(PackKeywords)]
    assert [*inspect.signature(pack).parameters] == ["spec", "output", *options]
    assert [name for name in options if f"``{name}``" not in str(pack.__doc__)] == []


def test_a_text_is_one_glob_and_not_its_letters(tmp_path: Path) -> None:
    given = PackKeywords(root=tmp_path, data="vocab/*.txt", extern="einops.**", mock=["a", "b"])
    options = given.checked("m:build")
    assert [*options.data] == ["vocab/*.txt"]
    assert options.globs() == {"deny": [], "mock": ["a", "b"], "extern": ["einops.**"], "intern": []}


def test_a_file_of_inputs_is_that_of_the_callers_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    inputs = {given: PackKeywords(root=tmp_path, inputs=given).checked("m:build").inputs for given in GIVEN}
    assert inputs == {**dict(zip(GIVEN, GIVEN, strict=True)), "x.json": str(tmp_path / "x.json")}
