"""The scaling benchmark: what it draws, and that it measures each way."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from bench import measured
from paths import ROOT

from benchmarks.shared import shared_python


def test_processes_can_run_the_shared_library_of_a_python_that_has_python_linked_in(tmp_path: Path) -> None:
    program = shared_python.embedding(tmp_path / "python")
    asked = """if True:
        import sys, numpy
        from benchmarks.shared import shared_python
        print(shared_python.is_linked_in(), sys.version, sys.prefix, numpy.__file__.startswith(sys.prefix))
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "scripts")}
    done = subprocess.run([program, "-c", asked], capture_output=True, text=True, env=environment)
    assert done.stdout.strip() == f"False {sys.version} {tmp_path / 'python'} True", done.stderr


@pytest.mark.long
def test_scaling_measures_a_model_of_the_store_in_five_ways(tmp_path: Path) -> None:
    result, _ = measured(
        tmp_path, "scaling", "--models", "dlrm", "--threads", "1", "2", "--rounds", "2",
        "--seconds", "0.05", "--plot", str(tmp_path / "figure.svg"),
    )  # fmt: skip
    (model,) = result["suite"]
    assert (model["model"], model["graph"]) == ("dlrm", "trace")
    ways = {"interpreters", "one interpreter", "graph", "processes", "forked processes"}
    for what in ("rates", "cpu"):
        assert model[what].keys() == ways
        assert all(by_width.keys() == {"1", "2"} for by_width in model[what].values())
    assert all(len(each) == 2 and min(each) > 0 for way in model["rates"].values() for each in way.values())
    assert min(model["memory"].values()) > 0
    assert (tmp_path / "figure.svg").stat().st_size > 1000
