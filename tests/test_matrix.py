"""What ``scripts/test --matrix`` does beside running the tests."""

from __future__ import annotations

from pathlib import Path

import matrix


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


def test_what_the_checkout_no_longer_has_leaves_its_copy(tmp_path: Path) -> None:
    matrix.copy_checkout(tmp_path)
    (tmp_path / "native" / "gone.py").touch()
    matrix.copy_checkout(tmp_path)
    assert not (tmp_path / "native" / "gone.py").exists()
