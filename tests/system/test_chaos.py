"""Innocent models stay right and are soon served again, whatever happens; nothing is left or grows."""

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


@pytest.mark.long
def test_a_leak_that_is_planted_is_found() -> None:
    done = run_chaos("--seconds=0", "--plant=dirty")
    assert done.returncode == 1, done.stdout + done.stderr
    faults = [line for line in done.stdout.splitlines() if line.startswith("FAULT")]
    assert faults
    assert all(": dirty grew from" in fault for fault in faults), done.stdout
