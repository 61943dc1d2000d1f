"""The recipes, and what tests do with them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from paths import ROOT

STORE = ROOT / "model_store"
SUPPORT = ROOT / "scripts/support"
SPEC = "project.factory:build"

# Top-level modules whose code goes into the archive, and packages that the server must have.
INTERNED = {
    "bert": {"project"},
    "convnet": {"project"},
    "mobilenet": {"project"},
    "dlrm": {"project"},
    "translator": {"project"},
    "tacotron": {"project"},
    "tagger": {"project", "torch_struct"},
    "detector": {"project"},
    "slomo": {"project"},
    "stargan": {"project"},
    "cyclegan": {"project"},
    "demucs": {"project"},
    "yolo": {"project"},
    "painter": {"project"},
    "matting": {"project"},
    "moco": {"project"},
}
DATA = {"detector": ["project/region_ops.so"], "yolo": ["project/names.txt"]}
# Kinds of their own: handlers, objects of packages' compiled code, a package that is interned. The rest is
# packed if there is time for it.
FEW = ("bert", "convnet", "tagger")
EXTERN = {"bert": {"tokenizers", "transformers"}, "convnet": {"PIL"}, "mobilenet": {"PIL"}}


def build_operators() -> None:
    """Compile the detector's, if that has not been done."""
    command = [sys.executable, STORE / "detector/build_ops.py"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=240)


def answer_from_source(sources: list[tuple[Path, str, Path]]) -> None:
    """Have a stock process for each source's root and SPEC write its answer to its folder."""
    words = [word for source in sources for word in source]
    command = [sys.executable, "-P", "-W", "ignore", SUPPORT / "stock_answer.py", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr


def answer_from_archives(jobs: list[tuple[Path, Path]]) -> list[list[Any]]:
    """Where two interpreters' answers, given at once, differ from the stock ones: a list for each.

    Args:
        jobs: archives, and the folders with the stock answers.
    """
    described = [{"archive": str(archive), "stock": str(folder)} for archive, folder in jobs]
    command = [
        sys.executable,
        "-W",
        "ignore",
        Path(__file__).with_name("packaged_answer.py"),
        json.dumps(described),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return [each["differences"] for each in json.loads(done.stdout.splitlines()[-1])]
