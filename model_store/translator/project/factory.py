"""Builds the translator; nothing here goes into the archive."""

from __future__ import annotations

import torch

from project.model import Translator


def build() -> Translator:
    """Three layers each of encoder and decoder, with seeded random weights."""
    with torch.random.fork_rng():
        torch.manual_seed(9)
        return Translator(width=128, heads=4, layers=3, longest=48).eval()


def example_inputs() -> list[str]:
    """One argument: texts of different lengths."""
    return ["Good morning.", "Where is the railway station, please?", "Ça va ?"]
