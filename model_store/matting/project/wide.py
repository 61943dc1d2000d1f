"""Builds the matting network so wide that Python has little to do; nothing here goes into the archive."""

from __future__ import annotations

import torch

from project.model import Matting
from project.network import ContextSwitching


def build() -> Matting:
    """Half as wide as the paper's, with seeded random weights."""
    with torch.random.fork_rng():
        torch.manual_seed(47)
        return Matting(ContextSwitching(channels=32, shared=3, split=3)).eval()


def example_inputs() -> dict[str, torch.Tensor]:
    """By name, as the factory's."""
    names = {"image": 3, "background": 3, "guess": 1, "instead": 3}
    return {name: torch.rand(1, channels, 128, 128) for name, channels in names.items()}
