"""Innocent models stay right and are soon served again after every fault; nothing is left."""

from __future__ import annotations

import subprocess
import sys

import pytest
from paths import ROOT

CHAOS = ROOT / "scripts" / "support" / "chaos" / "chaos.py"


def run_chaos(*options: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        str(CHAOS),
        "--seed=1",
        "--outage=60",
        "--frontend-outage=90",
        *options,
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=900)


@pytest.mark.long
def test_a_minute_of_chaos_leaves_no_wrong_answer_and_nothing_behind() -> None:
    done = run_chaos("--seconds=60")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "seed 1: passed" in done.stdout
