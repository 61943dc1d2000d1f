"""Builds the comparer; nothing here goes into the archive."""

from __future__ import annotations

import torch

from project.encoder import Encoder
from project.model import MoCo


def build() -> MoCo:
    """MoCo with a ResNet-50 of narrow layers and a short queue, with seeded random weights."""
    with torch.random.fork_rng():
        torch.manual_seed(53)
        return MoCo(Encoder, width=8, features=64, queue=256).eval()


def example_inputs() -> tuple[torch.Tensor, torch.Tensor]:
    """Three images, and another view of each: mirrored."""
    images = torch.rand(3, 3, 64, 64)
    return images, images.flip(3)
