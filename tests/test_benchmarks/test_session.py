"""The session benchmark: calls and tensors of every size are measured."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import measured


@pytest.mark.long
def test_session_measures_calls_and_tensors_of_every_size(tmp_path: Path) -> None:
    result, _ = measured(tmp_path, "session", "--rounds", "4", "--calls", "20")
    sizes = [f"tensor of {size:,}" for size in (10, 1_000, 100_000, 10_000_000)]
    assert list(result["measured"]) == [
        "plain call",
        "lease",
        "call in an open session",
        "by hand",
        "call of a movable object",
        *sizes,
    ]
    assert all(len(values) == 4 and min(values) > 0 for values in result["measured"].values())
    assert min(result["over_plain_us"].values()) > 0
    assert result["large_over_small"] > 0
