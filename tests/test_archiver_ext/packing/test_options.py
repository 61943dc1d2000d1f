"""Options of packing, as keyword arguments."""

from __future__ import annotations

from pathlib import Path

from interpool.archiver_ext.packing.options import PackKeywords


def test_a_text_is_one_glob_and_not_its_letters(tmp_path: Path) -> None:
    given = PackKeywords(root=tmp_path, data="vocab/*.txt", extern="einops.**", mock=["a", "b"])
    options = given.checked("m:build")
    assert [*options.data] == ["vocab/*.txt"]
    assert options.globs() == {"deny": [], "mock": ["a", "b"], "extern": ["einops.**"], "intern": []}
