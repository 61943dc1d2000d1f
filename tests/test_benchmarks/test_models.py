"""docs/models.md, and what writes its tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from marked import put
from paths import ROOT

from benchmarks.models.tables import (
    Row,
    code_lines,
    recipes_table,
    request_words,
    suite_table,
    third_party_table,
)
from benchmarks.shared.model_list import RECIPES, THIRD_PARTY

SOURCE = '''"""A docstring
of two lines."""

import torch  # counted


# not counted
def build():
    """Not counted."""
    text = """counted,
as it is code"""
    return text
'''


def test_lines_of_code_are_neither_blank_nor_prose(tmp_path: Path) -> None:
    file = tmp_path / "factory.py"
    file.write_text(SOURCE)
    assert code_lines(file) == 5


def test_every_model_of_the_store_is_tried() -> None:
    store = ROOT / "model_store"
    recipes = {folder.parent.name for folder in store.glob("*/project")}
    assert {model.name for model in RECIPES} == recipes - {"convnet"}
    assert {model.name for model in THIRD_PARTY} == {file.stem for file in store.glob("third_party/*.py")}


def test_a_table_replaces_the_one_between_its_markers(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "before\n<!-- a: begin (scripts/bench models) -->\nold\n<!-- a: end -->\n"
        "<!-- b: begin (scripts/bench models) -->\nkept\n<!-- b: end -->\nafter\n"
    )
    put(page, "a", "| new |", "scripts/bench models")
    assert page.read_text() == (
        "before\n<!-- a: begin (scripts/bench models) -->\n| new |\n<!-- a: end -->\n"
        "<!-- b: begin (scripts/bench models) -->\nkept\n<!-- b: end -->\nafter\n"
    )
    with pytest.raises(ValueError, match="c: begin"):
        put(page, "c", "| new |", "scripts/bench models")


def test_a_row_says_what_it_took() -> None:
    good = Row("m", "a model", lines=9, counts={"intern": 3, "extern": 2}, attempts=1, size=2_000_000,
               archive=[0.004, 0.002], torch=[0.002, 0.001], verified=True, equal=True)  # fmt: skip
    line = recipes_table([good]).splitlines()[-1]
    assert (
        line
        == "| **m**: a model | 9 lines | 3 / 2 / 0 | at once | 2.00 MB | 0.0 s | 3 ms | 2.0 | yes | yes | - |"
    )
    corrected = Row("m", "a model", attempts=2, corrections=["x is extern: it was mocked"], externs=["x"])
    line = third_party_table([corrected]).splitlines()[-1]
    assert "| 2 attempts: x is extern: it was mocked | 0 / 0 / 0 | x | 0.00 MB | **no** | - |" in line
    failed = Row("m", "a model", failed="cannot be pickled: a | b")
    assert "| cannot be pickled: a \\| b | - |" in third_party_table([failed])


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (("stack", "application/json", b"[1.0, 2.0]"), "stack: `[1.0, 2.0]`"),
        (("each", "text/plain; charset=utf-8", b"x" * 1_500), "each: text, 1.5 kB"),
        ((None, "application/octet-stream", b"PNG"), "handler: bytes, 0.0 kB"),
    ],
)
def test_a_request_fits_into_a_cell(request_: tuple[str | None, str, bytes], words: str) -> None:
    assert request_words(*request_) == words


def test_the_page_has_every_model() -> None:
    page = (ROOT / "docs/models.md").read_text(encoding="utf-8")
    for model in (*RECIPES, *THIRD_PARTY):
        assert f"\n| **{model.name}**: {model.what} |" in page, "run scripts/bench models"
    for model in RECIPES:
        assert f"\n| {model.paper} | `{model.name}` |" in page, "run scripts/bench models --recipes"


def test_a_row_says_what_becomes_of_a_model_as_a_graph() -> None:
    def last(**facts: Any) -> str:
        row = Row("m", "a model", paper="M", attempts=1, **facts)
        return suite_table([row]).splitlines()[-1]

    assert last(exported={"how": "script", "part": "its network"}) == (
        "| M | `m` | at once, nothing mocked | compiled by TorchScript, its network |"
    )
    reasons = {"script": "RuntimeError: a | b:", "trace": f"TypeError: {'x' * 90}"}
    assert last(exported={"how": "", "reasons": reasons}, counts={"mock": 2}) == (
        f"| M | `m` | at once, 2 mocked | no: script: `a \\| b`; trace: `{'x' * 67}...` |"
    )
