"""The models that ``scripts/bench scaling --models`` packs and calls: recipes of the store."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.shared.checkout import ROOT

STORE = ROOT / "model_store"


@dataclass(frozen=True)
class Model:
    """One model to pack.

    Attributes:
        name: in the table.
        root: its source.
        spec: its factory.
        build: scripts to run first, below the root.
    """

    name: str
    root: Path
    spec: str = "project.factory:build"
    build: tuple[str, ...] = ()


# Each a recipe of the kind of one model of Figure 4 of "Using Python for Model Inference in Deep Learning"
# (DeVito et al., 2021, arXiv:2104.00254): see docs/models.md.
KINDS = (
    "bert", "mobilenet", "dlrm", "translator", "tacotron", "tagger", "detector", "slomo", "stargan",
    "cyclegan", "demucs", "yolo", "painter", "matting", "moco",
)  # fmt: skip
RECIPES = [Model(kind, STORE / kind, build=("build_ops.py",) if kind == "detector" else ()) for kind in KINDS]
# Those that TorchScript takes, so wide that a call is nearly all arithmetic, as of the paper's big models.
WIDE = [Model(f"{kind}, wide", STORE / kind, "project.wide:build") for kind in ("demucs", "matting")]
