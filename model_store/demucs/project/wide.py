"""Builds the separator so wide that Python has little to do; nothing here goes into the archive."""

from __future__ import annotations

import torch

from project.factory import RATE
from project.model import Demucs


def build() -> Demucs:
    """37 million seeded random weights."""
    with torch.random.fork_rng():
        torch.manual_seed(37)
        return Demucs(["drums", "bass", "other", "vocals"], channels=48, depth=5).eval()


def example_inputs() -> list[torch.Tensor]:
    """One argument: two seconds in stereo."""
    return [torch.rand(2, 2 * RATE) - 0.5]
