"""Builds the detector; nothing here goes into the archive."""

from __future__ import annotations

from pathlib import Path

import torch

from project.darknet import Darknet
from project.description import read_description
from project.model import Detector


def build() -> Detector:
    """YOLOv3 as ``yolov3.cfg`` describes it, an eighth as wide as the paper's, with seeded random weights."""
    sections = read_description(Path(__file__).with_name("yolov3.cfg").read_text(encoding="utf-8"))
    with torch.random.fork_rng():
        torch.manual_seed(41)
        return Detector(Darknet(sections, width=1 / 8), confidence=0.5, overlap=0.4, side=160).eval()


def example_inputs() -> list[torch.Tensor]:
    """One argument: two images of different sizes."""
    return [torch.rand(3, 90, 130), torch.rand(3, 100, 60)]
