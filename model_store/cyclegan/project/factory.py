"""Builds the translator of images; nothing here goes into the archive."""

from __future__ import annotations

import torch

from project.model import CycleGAN
from project.options import Options


def build() -> CycleGAN:
    """Two generators, an eighth as wide as the paper's, with seeded random weights."""
    with torch.random.fork_rng():
        torch.manual_seed(31)
        return CycleGAN(Options(channels=8, blocks=6)).eval()


def example_inputs() -> dict[str, object]:
    """By name: two images, and which way to translate them."""
    return {"images": torch.rand(2, 3, 64, 64) * 2 - 1, "direction": "to horses"}
