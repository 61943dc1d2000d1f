"""The scale-out benchmark, if Ray is installed."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from bench import measured

pytest.importorskip("ray")


@pytest.mark.long
def test_processes_and_a_pool_on_ray_are_asked_and_weighed(tmp_path: Path) -> None:
    small = ["--seconds=1", "--copies=2", "--models=2", "--copies-each=1"]
    result, _ = measured(tmp_path, "scale_out", *small)
    one, many = "2 copies", "2 models with 1"
    assert result["measured"].keys() == {
        f"{kind}, {what}"
        for kind in ("processes", "pool")
        for what in (
            *(f"{one}: by {way}, answers/s" for way in ("Python proxy", "HAProxy", "handle")),
            *(f"{models}: {whose}, MB" for models in (one, many) for whose in ("replicas", "Ray's own")),
        )
    }
    for values in result["measured"].values():
        assert all(math.isfinite(value) and value > 0 for value in values), result["measured"]
    assert len(result["bars"]) == 5
