"""The weights benchmark: both servers are measured with each number of workers."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import measured

from benchmarks import figures
from benchmarks.weights import benchmark as weights


@pytest.mark.long
def test_weights_measures_both_servers_with_each_number_of_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, _ = measured(
        tmp_path, "weights", "--sizes", "1", "--workers", "1,2", "--rounds", "1", "--settle", "0"
    )
    steps = [(size, workers) for size in (0, 1) for workers in (1, 2)]
    assert [(row["megabytes"], row["workers"]) for row in result["table"]] == steps
    for row in result["table"]:
        for server in weights.SERVERS:
            assert row[f"{server}_mb"][0] > 0
            assert len(row[f"{server}_scaled_s"]) == row["workers"] - 1
            assert len(row[f"{server}_copies"]) == row["megabytes"]
    assert [row["megabytes"] for row in result["registrations"]] == [0, 1]
    assert all(
        row[f"{server}_{what}"][0] > 0
        for row in result["registrations"]
        for server in weights.SERVERS
        for what in ("s", "unpacked_s")
    )
    assert len(result["bars"]) == 3
    monkeypatch.setattr(figures, "kept", lambda _name: result)
    assert "| 1 MB x 2 |" in figures.weights()
    assert "| 1 MB | " in figures.registrations()
