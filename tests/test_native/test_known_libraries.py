"""The table of libraries that were tried: in the package, in docs/extensions.md, and as raw numbers."""

from __future__ import annotations

import json
from importlib import metadata

import pytest
from click.testing import CliRunner
from paths import ROOT

from benchmarks.libraries import benchmark as libraries
from interpool.handler.cli import main
from interpool.native.known_libraries import TABLE, KnownLibrary, known_library

RAW = json.loads((ROOT / "docs/benchmarks/libraries.json").read_text(encoding="utf-8"))
KNOWN = json.loads(TABLE.read_text(encoding="utf-8"))


def test_at_least_forty_libraries_were_tried() -> None:
    assert len(KNOWN["libraries"]) >= 40


def test_the_page_and_the_raw_numbers_have_every_library() -> None:
    page = (ROOT / "docs/extensions.md").read_text(encoding="utf-8")
    raw = {each["distribution"]: each for each in RAW["libraries"]}
    assert raw.keys() == {library.distribution for library in libraries.LIBRARIES}, (
        "run scripts/bench libraries"
    )
    for library in libraries.LIBRARIES:
        name = f"{libraries.bare(library.distribution)} {raw[library.distribution]['version']}".strip()
        assert f"\n| {name} | {library.what} |" in page, "run scripts/bench libraries"
        assert raw[library.distribution]["call"] == library.call
    assert f"`scripts/bench libraries` on {RAW['date']} with" in page


def test_what_is_warned_of_is_what_the_raw_numbers_say() -> None:
    found = {each["distribution"]: each["computes"] for each in KNOWN["libraries"]}
    tried = {libraries.bare(each["distribution"]): each for each in RAW["libraries"] if each["version"]}
    assert found == {name: each["status"] in libraries.SERVED for name, each in tried.items()}
    assert KNOWN["date"] == RAW["date"]


def test_names_are_compared_as_pip_does() -> None:
    row = known_library("scikit-learn")
    assert row
    assert row == known_library("Scikit_Learn") == known_library("scikit.learn[extra]")
    assert known_library("no-such-library") is None


def test_a_row_says_what_happens_and_with_which_version_that_was_seen() -> None:
    good = KnownLibrary("numpy", "2.0", "2026-01-02", computes=True, failure="")
    bad = KnownLibrary("nowhere", "1.0", "2026-01-02", computes=False, failure="it hangs")
    here = metadata.version("numpy")
    assert good.said == f"numpy {here} is known to compute there (tried with 2.0, 2026-01-02)"
    assert (
        bad.said == "nowhere is known to fail in private interpreters: it hangs (tried with 1.0, 2026-01-02)"
    )


@pytest.mark.long
def test_the_doctor_says_what_is_known_of_what_it_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = KnownLibrary("PyYAML", "5.0", "2026-01-02", computes=False, failure="it crashed")
    monkeypatch.setattr(
        "interpool.native.diagnostics.import_trial.known_library",
        lambda name: bad if name == "PyYAML" else known_library(name),
    )
    done = CliRunner().invoke(main, ["doctor", "--imports", "numpy", "yaml"])
    assert done.exit_code == 1
    good, warned, fix = done.output.splitlines()
    assert good.startswith("imports  numpy: into two interpreters at once, ")
    assert f"; numpy {metadata.version('numpy')} is known to compute there (tried with " in good
    here = metadata.version("PyYAML")
    said = f"pyyaml {here} is known to fail in private interpreters: it crashed (tried with 5.0, 2026-01-02)"
    assert warned == f"FAIL  import yaml: it imports, but {said}"
    assert fix.startswith("      fix: serve the models that need it by TorchServe's stock workers")
