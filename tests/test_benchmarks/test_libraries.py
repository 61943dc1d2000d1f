"""The libraries benchmark: it goes on in the environment that has the libraries."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from benchmarks.libraries import benchmark
from benchmarks.shared.checkout import BENCHMARKS


def test_it_goes_on_with_its_own_arguments_in_the_libraries_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    venv.create(tmp_path, symlinks=True, with_pip=False)
    run: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(os, "execv", lambda path, command: run.append((path, command)))
    monkeypatch.setattr(sys, "argv", ["benchmark.py", "--only", "numpy"])
    benchmark.go_on_with(str(tmp_path / "bin" / "python"))
    ((path, command),) = run
    assert command[1:] == [str(BENCHMARKS), "libraries.benchmark", "--only", "numpy"]
    show = [command[0], "-c", "import sys; print(sys.prefix)"]
    there = subprocess.run(show, executable=path, capture_output=True, text=True, check=True)
    assert Path(there.stdout.strip()) == tmp_path
