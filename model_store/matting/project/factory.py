"""Builds the matting network; nothing here goes into the archive."""

from __future__ import annotations

import torch

from project.model import Matting
from project.network import ContextSwitching


def build() -> Matting:
    """An eighth as wide as the paper's, with seeded random weights."""
    with torch.random.fork_rng():
        torch.manual_seed(47)
        return Matting(ContextSwitching(channels=8, shared=3, split=3)).eval()


def example_inputs() -> dict[str, torch.Tensor]:
    """By name: an image, its background, a rough guess of where the person is, and a new background."""
    person = torch.zeros(1, 1, 60, 90)
    person[..., 15:, 30:60] = 1
    background = torch.rand(1, 3, 60, 90)
    image = background * (1 - person) + torch.rand(1, 3, 1, 1) * person
    return {"image": image, "background": background, "guess": person, "instead": torch.rand(1, 3, 60, 90)}
