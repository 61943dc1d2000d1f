"""Benchmarks run, check what they time, and keep what they measured. How fast it is, they say themselves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from paths import ROOT

BENCHMARKS = ROOT / "scripts" / "benchmarks"


def test_session_measures_calls_and_tensors_of_every_size(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "session.py"), "--rounds", "4", "--calls", "20"],
        env={**os.environ, "INTERPOOL_RESULTS": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode in (0, 1, 3), done.stderr
    (kept,) = tmp_path.glob("session-*.json")
    result = json.loads(kept.read_text())
    assert result["outcome"] == {0: "passed", 1: "failed", 3: "inconclusive"}[done.returncode]
    assert str(kept) in done.stdout
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
