"""What ``scripts/test --matrix`` does beside running the tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matrix

ROW = {
    "python": "3.13.0",
    "torch": "2.15.0+cu132",
    "passed": 3107,
    "failed": [],
    "demo": True,
    "scaling": True,
    "interpreter_mb": 49.1,
}


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


def test_an_inconclusive_benchmark_is_not_one_that_missed_its_bars() -> None:
    def row(**changed: Any) -> str:
        return matrix.table({"3.13+2.15.0": {**ROW, "on": "2020-02-02", **changed}})

    assert "| 3.13.0 | 2.15.0+cu132 | 3,107 passed | ✓ | ✓ | 49 MB | 2020-02-02 |" in row()
    assert "| ✓ | ✗ | 49 MB | 2020-02-02 | a bar of the benchmark |" in row(scaling=False)
    assert "| ✓ | the machine could not tell | 49 MB | 2020-02-02" in row(scaling=None)
    assert "| 3,107 passed, 1 failed | ✓ | ✓ | 49 MB | 2020-02-02 | `a.py::b` |" in row(failed=["a.py::b"])
