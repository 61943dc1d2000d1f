"""Builds the tagger; nothing here goes into the archive."""

from __future__ import annotations

import torch

from project.model import Tagger


def build() -> Tagger:
    """A BiLSTM-CRF with seeded random weights."""
    with torch.random.fork_rng():
        torch.manual_seed(17)
        return Tagger(width=96, buckets=2048).eval()


def example_inputs() -> list[list[str]]:
    """One argument: two sentences as lists of words."""
    return [["Ada", "Lovelace", "met", "Charles", "Babbage", "in", "London"], ["Paris", "was", "wet"]]
