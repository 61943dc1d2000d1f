"""The gpu benchmark: without a GPU it says so, and its own path is held by the CPU."""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from bench import bench, measured

from benchmarks.gpu import benchmark as gpu
from benchmarks.gpu import worker


@pytest.mark.long
def test_without_a_gpu_it_says_so_in_one_line(tmp_path: Path) -> None:
    done = bench(tmp_path, "gpu", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 3, done.stderr
    (line,) = done.stdout.splitlines()
    assert "no GPU" in line
    assert "--device cpu" in line
    assert list(tmp_path.iterdir()) == []


def test_what_a_further_one_takes_is_the_slope_from_the_fewest_to_the_most() -> None:
    curves = gpu.Curves(memory_mb={"processes": {1: 500.0, 2: 999.0, 16: 8000.0}, "graph": {4: 7.0}})
    assert curves.further_mb("processes") == pytest.approx(500)
    assert curves.further_mb("graph") == 0


@dataclass
class Saying:
    """A worker whose model answers so."""

    said: str

    def wait_ready(self) -> str:
        return self.said

    def kill(self) -> None:
        pass


@pytest.mark.parametrize(("said", "right"), [("1.01", True), ("1.1", False), ("nan", False)])
def test_an_answer_that_is_not_the_models_ends_it_be_it_no_number(
    said: str, right: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "Worker", lambda *_arguments: Saying(said))
    monkeypatch.setattr(gpu, "_expected", lambda: 1.0)
    bench_of_one = gpu.Bench("cpu", tmp_path)
    with ExitStack() as stack:
        if right:
            assert bench_of_one.start(stack, gpu.GRAPH, 1) == [Saying(said)]
        else:
            with pytest.raises(RuntimeError, match=f"the answer is {said}, not 1.0"):
                bench_of_one.start(stack, gpu.GRAPH, 1)


@pytest.mark.parametrize("answers", [[1.0, 1.1], [1.0, math.nan], [math.nan, 1.0]])
def test_interpreters_agree_where_all_answer_the_same_number(answers: list[float]) -> None:
    assert worker.agreed([1.0, 1.0005]) == 1.0005
    with pytest.raises(RuntimeError, match="do not agree"):
        worker.agreed(answers)


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
    assert (tmp_path / "gpu.svg").stat().st_size > 1000
