"""The models that ``scripts/bench scaling --models`` packs and calls: recipes of the store."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from benchmarks.shared.checkout import ROOT


class Model(NamedTuple):
    """One model to pack: its name in the table, the recipe's folder, its factory."""

    name: str
    root: Path
    spec: str


# Each is a recipe of the kind of one model of Figure 4 of the paper: see docs/models.md. The paper is "Using
# Python for Model Inference in Deep Learning" (DeVito et al., 2021, arXiv:2104.00254).
KINDS = (
    "bert", "mobilenet", "dlrm", "translator", "tacotron", "tagger", "detector", "slomo", "stargan",
    "cyclegan", "demucs", "yolo", "painter", "matting", "moco",
)  # fmt: skip
STORE = ROOT / "model_store"
RECIPES = [Model(kind, STORE / kind, "project.factory:build") for kind in KINDS]
# Those that TorchScript takes, so wide that a call is nearly all arithmetic, as of the paper's big models.
WIDE = [Model(f"{kind}, wide", STORE / kind, "project.wide:build") for kind in ("demucs", "matting")]
