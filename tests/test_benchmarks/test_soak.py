"""The soak: the page says its limits, and a short one catches a leak."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bench import measured
from paths import ROOT

from benchmarks.soak import benchmark as soak


def sample(seconds: float, **given: float) -> soak.Sample:
    values: dict[str, Any] = {
        "requests": 0, "memory_mb": 400.0, "private_mb": 300.0, "descriptors": 80, "mappings": 2000,
        "threads": 30, "p50_ms": 2.0, "p99_ms": 5.0, "shims_mb": 1.0, "frontend_mb": 300.0, **given,
    }  # fmt: skip
    return soak.Sample(seconds=seconds, **values)


def test_the_page_says_how_much_more_may_grow_in_a_run_that_is_short() -> None:
    page = (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")
    median = sample(0.0).p50_ms

    def limits(minutes: float) -> list[float]:
        return [soak.limit_of(what, [sample(0.0), sample(60 * minutes)]) for what in soak.JUDGED]

    part = 1 - soak.WARM
    rows = {
        "in all": [*soak.RISES.values(), soak.LATENCY_LIMIT * median],
        "an hour, where one counts": [*soak.LIMITS.values(), soak.LATENCY_LIMIT * median],
        f"an hour, by `--long` ({60 * part:g} minutes count)": limits(60 * part),
        f"an hour, by five minutes ({5 * part:g} count)": limits(5 * part),
    }
    assert soak.RISES.keys() == soak.LIMITS.keys()
    assert rows["an hour, where one counts"] == limits(60)
    assert f"\n| at most | {' | '.join(soak.JUDGED)} |\n" in page
    for name, (*counts, latency) in rows.items():
        cells = [
            *(f"{each:.3g}" for each in counts),
            f"{latency / median:.2g} \N{MULTIPLICATION SIGN} its median",
        ]
        assert f"\n| {name} | {' | '.join(cells)} |\n" in page
    memory, _, descriptors, mappings, threads = soak.LIMITS.values()
    assert f"at most {memory:g} MB, {descriptors:g}, {mappings:g}, {threads:g}, a fifth, in less" in page


def test_samples_beside_a_worker_that_torchserve_has_forgotten_do_not_count() -> None:
    samples = [
        sample(float(second), descriptors=80 + 10 * (second > 50), others=int(second > 50))
        for second in range(80)
    ]
    assert {each.descriptors for each in soak.after(samples)} == {80}
    assert len(soak.after(samples[60:])) > 0  # if there are no others


@pytest.mark.long
def test_a_short_soak_catches_the_leak_and_finds_no_fault(tmp_path: Path) -> None:
    result, printed = measured(tmp_path, "soak", "--minutes", "0.3", "--control-minutes", "0.3")
    assert result["leak"]["verdict"] == "grows", printed
    assert result["faults"] == result["twice"] == []
    assert result["answers"]["failing"]["errors"] > 0
    assert result["kills"] >= len(result["samples"])
    assert min(one["right"] for one in result["answers"].values()) > 0
