"""Builds the painter; nothing here goes into the archive."""

from __future__ import annotations

import torch

from project.actor import Actor
from project.model import Painter
from project.renderer import Renderer


def build() -> Painter:
    """An actor a quarter as wide as the paper's, and a small renderer, with seeded random weights."""
    with torch.random.fork_rng():
        torch.manual_seed(43)
        return Painter(Actor(channels=16), Renderer(hidden=(64, 128), side=64)).eval()


def example_inputs() -> tuple[torch.Tensor, int]:
    """Two pictures, to be painted in four steps."""
    return torch.rand(2, 3, 40, 56), 4
