"""Builds the separator; nothing here goes into the archive."""

from __future__ import annotations

import math

import torch

from project.model import Demucs

RATE = 8000


def build() -> Demucs:
    """A small Demucs with seeded random weights."""
    with torch.random.fork_rng():
        torch.manual_seed(37)
        return Demucs(["drums", "bass", "other", "vocals"], channels=12, depth=4).eval()


def example_inputs() -> list[torch.Tensor]:
    """One argument: half a second in stereo, and a shorter piece."""
    time = torch.arange(RATE // 2) / RATE
    chord = sum(torch.sin(2 * math.pi * pitch * time) for pitch in (110.0, 277.2, 329.6))
    return [torch.stack([chord / 3, torch.rand(len(time)) - 0.5]), torch.rand(2, 1500) - 0.5]
