"""The table of libraries that were tried: on its page, and as raw numbers."""

from __future__ import annotations

import json

from paths import ROOT

from benchmarks.libraries import benchmark as libraries


def test_the_page_and_the_raw_numbers_have_every_library() -> None:
    page = (ROOT / "docs/extensions.md").read_text(encoding="utf-8")
    found = json.loads((ROOT / "docs/benchmarks/libraries.json").read_text(encoding="utf-8"))
    raw = {each["distribution"]: each for each in found["libraries"]}
    assert raw.keys() == {library.distribution for library in libraries.LIBRARIES}, (
        "run scripts/bench libraries"
    )
    for library in libraries.LIBRARIES:
        name = f"{libraries.bare(library.distribution)} {raw[library.distribution]['version']}".strip()
        assert f"\n| {name} | {library.what} |" in page, "run scripts/bench libraries"
        assert raw[library.distribution]["call"] == library.call
    assert f"`scripts/bench libraries` on {found['date']} with" in page
