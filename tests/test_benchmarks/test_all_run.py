"""Benchmarks run, with the smallest options that they have; some do so in files of their own."""

from __future__ import annotations

import math
import re
import sys
from datetime import date
from pathlib import Path
from typing import NamedTuple

import pytest
from bench import measured

from benchmarks.shared.checkout import BENCHMARKS


class Small(NamedTuple):
    """A benchmark's smallest options, and what it measures with them."""

    options: list[str]
    configurations: list[str]


SMALL = {
    "libraries": Small([f"--environment={sys.prefix}", "--only=numpy"], ["calls of one library"]),
    "many": Small(
        ["--models=2", "--workers=1"],
        [
            "registered, s",
            "shims, MB",
            "host, MB",
            "TorchServe's frontend, MB",
            "one shim, MB",
            "ready after the host was killed, s",
        ],
    ),
    "memory": Small(
        ["--rounds=1", "--further=1", "--models=1", "--workers=1", "--stock-workers=1"],
        [
            *(f"{kind}, ready, s of CPU" for kind in ("lean", "full")),
            *(
                f"{kind}, {what}: {part}, MB"
                for kind in ("lean", "full")
                for what in ("bare", "BERT")
                for part in ("pss", "dirty")
            ),
            *(f"process, {what}: pss, MB" for what in ("bare", "BERT")),
        ],
    ),
    "neighbour": Small(
        ["--rounds=1", "--requests=2", "--warm=1", "--greedy=0.02", "--quiet=0.005"],
        [
            f"{server}: {how}"
            for server in ("stock", "pool", "pool, share 1")
            for how in ("alone", "beside a greedy one")
        ],
    ),
    "rest": Small(
        ["--rounds=1", "--seconds=0.3", "--warm=0.1", "--only=2 workers, 8 clients"],
        [
            f"{case}, 2 workers, 8 clients: {server}"
            for case in ("tiny", "tiny, batches of 8", "empty", "1 MB")
            for server in ("stock", "pool", "at once", "bound")
        ],
    ),
    "scaling": Small(
        ["--rounds=1", "--seconds=0.1"],
        [
            "one process",
            "two processes",
            "two interpreters",
            "two threads",
            "packaged: one process",
            "packaged: two processes",
            "packaged: load_pickle",
            "packaged: movable object",
        ],
    ),
    "session": Small(
        ["--rounds=4", "--calls=20"],
        [
            "plain call",
            "lease",
            "call in an open session",
            "by hand",
            "call of a movable object",
            *(f"tensor of {size:,}" for size in (10, 1_000, 100_000, 10_000_000)),
        ],
    ),
    "startup": Small(
        ["--rounds=1"],
        [
            "stock: first",
            "pool: first, host by serve",
            "pool: first, host by its worker",
            "pool: first of 64, by its worker",
            "pool: p99 at first",
            "pool: p99 later",
            *(
                f"{server}: {what}"
                for server in ("pool", "stock")
                for what in ("after a kill", "ready", "answered")
            ),
        ],
    ),
}


def test_every_benchmark_is_run_by_a_test() -> None:
    elsewhere = {
        name
        for file in Path(__file__).parent.glob("test_*.py")
        for name in re.findall(r'\bmeasured\(\s*\w+, "(\w+)"', file.read_text(encoding="utf-8"))
    }
    assert elsewhere | SMALL.keys() == {file.parent.name for file in BENCHMARKS.glob("*/benchmark.py")}


@pytest.mark.long
@pytest.mark.parametrize("name", SMALL)
def test_a_benchmark_measures_what_it_names_and_says_when_and_by_which_bars(
    name: str, tmp_path: Path
) -> None:
    result, _ = measured(tmp_path, name, *SMALL[name].options)
    assert sorted(result["measured"]) == sorted(SMALL[name].configurations)
    for configuration, values in result["measured"].items():
        assert values, configuration
        assert all(map(math.isfinite, values)), (configuration, values)
        # TorchServe's back-off is taken from an absence, in whole seconds: little may be left.
        assert configuration.endswith("after a kill") or min(values) > 0, (configuration, values)
    assert result["bars"]
    for bar in result["bars"]:
        assert math.isfinite(bar["ratio"]), bar
        assert bar["ratio"] > 0, bar
        assert bar["met"] == (bar["ratio"] >= bar["least"]), bar
    assert date.fromisoformat(result["date"])
