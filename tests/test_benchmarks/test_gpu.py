"""The gpu benchmark: without a GPU it says so, and its own path is held by the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import bench, measured

from benchmarks.gpu import benchmark as gpu


@pytest.mark.long
def test_without_a_gpu_it_says_so_in_one_line(tmp_path: Path) -> None:
    done = bench(tmp_path, "gpu", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 3, done.stderr
    (line,) = done.stdout.splitlines()
    assert "no GPU" in line
    assert "--device cpu" in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_gpu_measures_rates_and_memory_in_three_ways_on_the_cpu(tmp_path: Path) -> None:
    result, _ = measured(
        tmp_path, "gpu", "--device", "cpu", "--layers", "2", "--widths", "2", "--rounds", "1",
        "--seconds", "0.05",
    )  # fmt: skip
    assert result["outcome"] != "failed"
    (curves,) = result["suite"]
    assert list(curves["rates"]) == list(gpu.WAYS)
    for way in gpu.WAYS:
        assert all(len(values) == 1 and values[0] > 0 for values in curves["rates"][way].values())
        assert all(memory > 0 for memory in curves["memory_mb"][way].values())
    assert result["device"] == "cpu"
