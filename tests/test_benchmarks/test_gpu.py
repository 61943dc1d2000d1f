"""The gpu benchmark: without a GPU it says so, and its own path is held by the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import bench, measured

from benchmarks.gpu import benchmark as gpu


def test_without_a_gpu_it_says_so_in_one_line(tmp_path: Path) -> None:
    done = bench(tmp_path, "gpu", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 3, done.stderr
    (line,) = done.stdout.splitlines()
    assert "no GPU" in line
    assert "--device cpu" in line
    assert list(tmp_path.iterdir()) == []


def test_what_a_further_one_takes_is_the_slope_from_the_fewest_to_the_most() -> None:
    curves = gpu.Curves("m", memory_mb={"processes": {1: 500.0, 2: 999.0, 16: 8000.0}, "graph": {4: 7.0}})
    assert curves.further_mb("processes") == pytest.approx(500)
    assert curves.further_mb("graph") == 0


@pytest.mark.long
def test_gpu_measures_rates_and_memory_in_three_ways_on_the_cpu(tmp_path: Path) -> None:
    result, _ = measured(
        tmp_path, "gpu", "--device", "cpu", "--models", "small", "--widths", "2", "--rounds", "1",
        "--seconds", "0.05",
    )  # fmt: skip
    assert result["outcome"] != "failed"
    (curves,) = result["suite"]
    assert curves["model"] == "small"
    assert list(curves["rates"]) == list(gpu.WAYS)
    for way in gpu.WAYS:
        assert all(len(values) == 1 and values[0] > 0 for values in curves["rates"][way].values())
        assert all(memory > 0 for memory in curves["memory_mb"][way].values())
    assert result["device"] == "cpu"
    assert (tmp_path / "gpu.svg").stat().st_size > 1000


@pytest.mark.long
def test_the_large_models_layers_are_as_many_as_asked_for(tmp_path: Path) -> None:
    result, _ = measured(
        tmp_path, "gpu", "--device", "cpu", "--models", "large", "--layers", "2", "--widths", "1",
        "--rounds", "1", "--seconds", "0.05",
    )  # fmt: skip
    assert result["outcome"] != "failed"
