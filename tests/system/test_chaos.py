"""Innocent models stay right and are soon served again, whatever happens; nothing is left or grows."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import threading

import pytest
from paths import ROOT

sys.path.insert(0, str(ROOT / "scripts/support/chaos"))

from footprints import EACH, EDGE, TOLERANCE, Lives, Sample, sample

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


def test_what_comes_and_goes_is_none_nor_what_is_there_from_the_beginning() -> None:
    peak = grown(FIRST, mappings=10_000, dirty=5_000)
    assert not lives(*[FIRST] * EDGE, *[peak] * 9, FIRST, peak, peak).faults()
    assert not lives(FIRST, peak, *[peak] * 9).faults()


def test_an_interpreter_that_is_new_may_have_its_part_and_no_more() -> None:
    one_more = grown(FIRST, 1, EACH.mappings, EACH.dirty)
    assert not lives(*[FIRST] * EDGE, *[one_more] * EDGE).faults()
    two_mores = grown(one_more, 0, EACH.mappings, EACH.dirty)
    assert len(lives(*[FIRST] * EDGE, *[two_mores] * EDGE).faults()) == 2


def test_what_grows_between_two_new_interpreters_is_not_taken_for_theirs() -> None:
    leaks = [grown(FIRST, mappings=i * TOLERANCE.mappings / EDGE) for i in range(2 * EDGE + 3)]
    more = grown(FIRST, 2, EACH.mappings, EACH.dirty)
    (fault,) = lives(*leaks, *[more] * EDGE).faults()
    assert f"{len(leaks)} samples: mappings grew" in fault


def test_another_host_starts_anew() -> None:
    made = Lives()
    for pid in (7, 8):
        for _ in range(2 * EDGE):
            made.add({pid: grown(FIRST, mappings=pid * 1000)})
    assert not made.faults()
    assert "2 hosts" in str(made)


def test_samples_tell_what_a_process_has_mapped_and_written() -> None:
    before = sample(os.getpid(), 1)
    kept = [mmap.mmap(-1, mmap.PAGESIZE) for _ in range(500)]
    written = bytearray(b"x") * (50 << 20)
    after = sample(os.getpid(), 1)
    assert before is not None
    assert after is not None
    assert after.mappings - before.mappings > 400
    assert after.dirty - before.dirty > 40
    assert len(kept) == 500
    assert len(written) == 50 << 20


def test_threads_that_live_are_no_growth() -> None:
    over = threading.Event()
    threads = [threading.Thread(target=over.wait) for _ in range(200)]
    before = sample(os.getpid(), 1)
    try:
        for thread in threads:
            thread.start()
        after = sample(os.getpid(), 1)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert before is not None
    assert after is not None
    assert after.mappings - before.mappings < 100


def test_a_process_that_is_gone_has_no_sample() -> None:
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
        assert sample(gone.pid, 1) is None
