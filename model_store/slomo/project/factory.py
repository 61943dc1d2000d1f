"""Builds the interpolator; nothing here goes into the archive."""

from __future__ import annotations

import torch

from project.model import SuperSloMo


def build() -> SuperSloMo:
    """Two narrow U-Nets with seeded random weights."""
    with torch.random.fork_rng():
        torch.manual_seed(23)
        return SuperSloMo(channels=8, depth=4).eval()


def example_inputs() -> tuple[torch.Tensor, torch.Tensor, int]:
    """Two frames of a pattern that moves to the left, of a size that is no power of two; three between."""
    pattern = torch.rand(3, 12, 18).repeat_interleave(5, dim=1).repeat_interleave(5, dim=2)
    return pattern[None, :, :, :84], pattern[None, :, :, 6:], 3
