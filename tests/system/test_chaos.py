"""Innocent models stay right and are soon served again, whatever happens; nothing is left or grows."""

from __future__ import annotations

import subprocess
import sys

import pytest
from paths import ROOT

sys.path.insert(0, str(ROOT / "scripts/support/chaos"))

from footprints import EDGE, TOLERANCE, Lives, Sample

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
@pytest.mark.parametrize("leak", ["mappings", "dirty"])
def test_a_leak_that_is_planted_is_found(leak: str) -> None:
    done = run_chaos("--seconds=0", f"--plant={leak}")
    assert done.returncode == 1, done.stdout + done.stderr
    faults = [line for line in done.stdout.splitlines() if line.startswith("FAULT")]
    assert faults
    assert all(f": {leak} grew from" in fault for fault in faults), done.stdout


FIRST = Sample(2, 1000, 300.0)


def lives(*samples: Sample) -> Lives:
    made = Lives()
    for each in samples:
        made.add({7: each})
    return made


def grown(first: Sample, interpreters: int = 0, mappings: float = 0, dirty: float = 0) -> Sample:
    return Sample(first.interpreters + interpreters, first.mappings + mappings, first.dirty + dirty)


@pytest.mark.parametrize(
    ("step", "unit"),
    [
        ({"mappings": TOLERANCE.mappings / EDGE}, "mappings grew from 1080 to 1240"),
        ({"dirty": TOLERANCE.dirty / EDGE}, "dirty grew from 343 to 428 MB"),
    ],
)
def test_what_grows_all_the_time_is_a_fault(step: dict[str, float], unit: str) -> None:
    samples = [FIRST]
    for _ in range(2 * EDGE + 2):
        samples.append(grown(samples[-1], **step))
    (fault,) = lives(*samples).faults()
    assert fault.startswith(f"host 7, {len(samples)} samples: {unit}")
