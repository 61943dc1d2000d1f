"""Benchmarks as users run them, on small settings."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from benchmarks.shared.checkout import program

PATIENCE_S = 1200


def bench(results: Path, name: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """What it printed and ended with, its results kept in that folder."""
    return subprocess.run(
        program(f"{name}.benchmark", *arguments),
        env={**os.environ, "INTERPOOL_RESULTS": str(results), **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


def measured(results: Path, name: str, *arguments: str) -> tuple[dict[str, Any], str]:
    """What it kept and printed, once that agrees with its exit status."""
    done = bench(results, name, *arguments)
    assert done.returncode in (0, 1, 3), done.stderr
    (kept,) = results.glob("*.json")
    assert str(kept) in done.stdout
    result: dict[str, Any] = json.loads(kept.read_text())
    assert result["outcome"] == {0: "passed", 1: "failed", 3: "inconclusive"}[done.returncode]
    return result, done.stdout
