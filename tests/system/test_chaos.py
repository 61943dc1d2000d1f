"""Innocent models stay right and are soon served again, whatever happens; nothing is left behind."""

from __future__ import annotations

import subprocess
import sys

import pytest
from paths import ROOT


@pytest.mark.long
def test_a_minute_of_chaos_leaves_no_wrong_answer_and_nothing_behind() -> None:
    chaos = ROOT / "scripts" / "support" / "chaos" / "chaos.py"
    command = [sys.executable, str(chaos), "--seconds=60", "--seed=1", "--outage=60", "--frontend-outage=90"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "seed 1: passed" in done.stdout
