"""What is published: each kept result is on a page, and each kept plot is drawn from a kept result."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT

from benchmarks import figures

FOLDER = ROOT / "docs" / "benchmarks"
COMMAND = "run .venv/bin/python scripts/benchmarks figures"


def words(svg: str) -> set[str]:
    """Titles, labels and names in a plot; numbers at its axes are matplotlib's choice."""
    return {text for text in re.findall(r">([^<>]+)</text>", svg) if re.search("[A-Za-z]", text)}


def test_every_kept_result_has_a_table_or_a_plot(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = {*figures.PLOTS, "libraries"}  # its table is in docs/extensions.md
    kept = figures.kept

    def noticed(name: str) -> dict[str, Any]:
        shown.add(name)
        return kept(name)

    monkeypatch.setattr(figures, "kept", noticed)
    for tables in figures.TABLES.values():
        for name, table in tables.items():
            if name != "runs":  # has a line of every result, and nothing of what was measured
                table()
    assert {file.stem for file in FOLDER.glob("*.json")} == shown


@pytest.mark.long
def test_every_kept_plot_is_drawn_from_a_kept_result_and_is_on_a_page(tmp_path: Path) -> None:
    drawn = {figures.plot(name, tmp_path).name: name for name in figures.PLOTS}
    assert {file.name for file in FOLDER.glob("*.svg")} == drawn.keys()
    pages = "".join(page.read_text() for page in figures.TABLES)
    for file, name in drawn.items():
        there, anew = (FOLDER / file).read_text(), (tmp_path / file).read_text()
        # Not byte for byte: another matplotlib, or other fonts, place things a little differently.
        assert there.endswith(figures.stamp(name)), f"{file}: {COMMAND}"
        assert words(there) == words(anew), f"{file}: {COMMAND}"
        assert pages.count(f"benchmarks/{file})") == 1
