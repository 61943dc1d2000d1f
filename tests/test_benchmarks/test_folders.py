"""The benchmarks' folders: each is one benchmark, and what several of them need is in a folder of its own."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

from benchmarks.shared import archiving
from benchmarks.shared.checkout import BENCHMARKS

SHARED = "shared"
FOLDERS = sorted(file.parent.name for file in BENCHMARKS.glob("*/__init__.py"))


def test_every_folder_is_a_benchmark_that_can_be_asked_for_but_the_shared_one() -> None:
    usage = subprocess.run([ROOT / "scripts" / "bench"], capture_output=True, text=True)
    names = re.findall(r"\w+", usage.stderr.partition("NAME: ")[2].partition(";")[0])
    assert sorted([*names, SHARED]) == FOLDERS
    assert [name for name in names if not (BENCHMARKS / name / "benchmark.py").is_file()] == []


# In the place of .venv/bin/python: says which benchmark it is to run, and ends as that one's file says.
PRETENDS = """#!/bin/sh
echo "$2"
exit "$(cat "$1/${2%.benchmark}/benchmark.py")"
"""


@pytest.mark.parametrize(("statuses", "worst"), [("000", 0), ("310", 1), ("303", 3)])
def test_all_benchmarks_are_run_and_the_worst_is_the_status(
    tmp_path: Path, statuses: str, worst: int
) -> None:
    scripts, python = tmp_path / "scripts", tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(PRETENDS)
    ended = dict(zip(("many", "rest", "scaling"), statuses, strict=True))
    for name, status in {**ended, "gpu": "1", "libraries": "1", "scale_out": "1", "soak": "1"}.items():
        (scripts / "benchmarks" / name).mkdir(parents=True)
        (scripts / "benchmarks" / name / "benchmark.py").write_text(status)
    shutil.copy(ROOT / "scripts" / "bench", scripts)
    (scripts / "setup").write_text("#!/bin/sh\n")
    for program_file in (python, scripts / "setup"):
        program_file.chmod(0o755)
    done = subprocess.run([scripts / "bench", "all"], capture_output=True, text=True)
    assert done.returncode == worst, done.stderr
    assert done.stdout.split() == [f"{name}.benchmark" for name in ended]


@pytest.mark.long
def test_an_ordinary_archives_sources_are_all_that_its_handler_needs(tmp_path: Path) -> None:
    _, handler, _, sources = archiving.ordinary(
        "benchmarks.serving.models:Small", tmp_path, "benchmarks.rest.handlers"
    )
    code = (
        "import sys; sys.path[:0] = sys.argv[1:]; import small, benchmarks.serving.models as models;"
        "served = small.Served(); served.initialize(None); print(models.__file__);"
        "print(served.handle([{'body': models.REQUEST}], None)[0].keys())"
    )
    command = [sys.executable, "-P", "-c", code, str(Path(handler).parent), sources]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    file, answer = done.stdout.splitlines()
    assert Path(sources) in Path(file).parents
    assert answer == "dict_keys(['y'])"
