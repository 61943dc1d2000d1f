"""Builds the detector; nothing here goes into the archive."""

from __future__ import annotations

import torch

from project.model import Detector


def build() -> Detector:
    """A small detector with seeded random weights."""
    with torch.random.fork_rng():
        torch.manual_seed(19)
        return Detector(classes=5, channels=64, proposals=40, found=10).eval()


def example_inputs() -> list[torch.Tensor]:
    """One argument: two images of different sizes."""
    return [torch.rand(3, 96, 128), torch.rand(3, 80, 80)]
