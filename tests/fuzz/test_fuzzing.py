"""The fuzzer finds nothing, for as long as it is given."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        find_spec("atheris") is None,
        reason="atheris is not installed: pip install 'interpool[long]', on Python 3.11 to 3.13",
    ),
]
TESTS = Path(__file__).parents[1]


def fuzz(folder: Path, target: str, seconds: int, script: str = "fuzz_archives.py") -> int:
    """Fuzzes in a process of its own; how many inputs it tried."""
    # What counts is the most that a process ever had, and it begins with that of who starts it.
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024 + 4096
    path = [str(TESTS), str(TESTS / "test_native/support"), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", Path(__file__).with_name(script), target,
         f"-max_total_time={seconds}", "-timeout=20", f"-rss_limit_mb={most}", f"-artifact_prefix={folder}/"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path), "TMPDIR": str(folder)},
        cwd=folder,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=seconds + 120,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-6000:]}"
    tried = re.search(r"Done (\d+) runs", done.stderr)
    assert tried, done.stderr[-2000:]
    return int(tried.group(1))


def test_the_fuzzer_finds_nothing(tmp_path: Path) -> None:
    assert fuzz(tmp_path, "all", 3) > 300


def test_the_fuzzer_finds_nothing_in_bodies(tmp_path: Path) -> None:
    assert fuzz(tmp_path, "all", 3, "fuzz_bodies.py") > 300


@pytest.mark.long
@pytest.mark.parametrize("target", ["torch.save", "pickle", "safetensors", "npy"])
def test_the_fuzzer_finds_nothing_in_bodies_in_two_minutes(tmp_path: Path, target: str) -> None:
    assert fuzz(tmp_path, target, 120, "fuzz_bodies.py") > 10_000


@pytest.mark.long
@pytest.mark.parametrize("target", ["zip", "members", "manifest"])
def test_the_fuzzer_finds_nothing_in_two_minutes(tmp_path: Path, target: str) -> None:
    assert fuzz(tmp_path, target, 120) > 10_000
