"""What ``scripts/test --matrix`` does beside running the tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matrix
import pytest

ROW = {
    "python": "3.13.0",
    "torch": "2.15.0+cu132",
    "passed": 3107,
    "failed": [],
    "demo": True,
    "scaling": True,
}


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Rows of this test's own: that of 3.13 with 2.15."""
    (tmp_path / "page.md").write_text(
        "<!-- matrix: begin (scripts/test --matrix) -->\n<!-- matrix: end -->\n"
    )
    (tmp_path / "matrix.json").write_text(json.dumps({"3.13+2.15.0": {**ROW, "on": "2020-02-02"}}))
    monkeypatch.setattr(matrix, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(matrix, "KEPT", tmp_path / "matrix.json")
    monkeypatch.setattr(matrix, "ROOT", tmp_path)
    cells = [matrix.Cell("3.13", "2.15.0"), matrix.Cell("3.14", "2.15.0")]
    monkeypatch.setattr(matrix, "cells", lambda: cells)
    return tmp_path / "matrix.json"


def test_a_copy_of_the_checkout_that_is_made_again_has_the_same_files(tmp_path: Path) -> None:
    """Links to folders among them: the second copy is not made inside of what they lead to."""

    def made() -> set[str]:
        matrix.copy_checkout(tmp_path)
        names = {str(each.relative_to(tmp_path)) for each in tmp_path.rglob("*")}
        return {name for name in names if not name.startswith(".git/")}

    (kept := tmp_path / "build" / "kept").mkdir(parents=True)
    first = made()
    assert made() == first
    assert (tmp_path / "src/interpool/native").readlink() == Path("../../native")
    assert kept.is_dir()


def test_a_benchmark_that_could_not_tell_is_not_one_that_missed_its_bars() -> None:
    def row(**changed: Any) -> str:
        return matrix.table({"3.13+2.15.0": {**ROW, "on": "2020-02-02", **changed}})

    assert "| 3.13.0 | 2.15.0+cu132 | 3,107 passed | ✓ | ✓ | 2020-02-02 |" in row()
    assert "| ✓ | ✗ | 2020-02-02 | a bar of the benchmark |" in row(scaling=False)
    assert "| ✓ | the machine could not tell | 2020-02-02" in row(scaling=None)
    assert "| 3,107 passed, 1 failed | ✓ | ✓ | 2020-02-02 | `a.py::b` |" in row(failed=["a.py::b"])


@pytest.mark.parametrize(("status", "scaling"), [(0, True), (1, False), (3, None)])
def test_the_benchmark_is_repeated_alone_and_nothing_else_of_the_row_changes(
    kept: Path, monkeypatch: pytest.MonkeyPatch, status: int, scaling: bool | None
) -> None:
    (kept.parent / "build/matrix/3.13+2.15.0").mkdir(parents=True)
    monkeypatch.setattr(matrix, "python_of", lambda _version: Path("python"))
    monkeypatch.setattr(matrix.Steps, "status", lambda _self, _name, *_command: status)
    assert matrix.main(["3.13+2.15.0:scaling"]) == (0 if scaling else 1)
    assert json.loads(kept.read_text()) == {"3.13+2.15.0": {**ROW, "on": "2020-02-02", "scaling": scaling}}
