"""Builds the image classifier; nothing here goes into the archive."""

from __future__ import annotations

from pathlib import Path

import torch

from project.model import Classifier, Network
from project.preprocessing import Preprocessor


def build() -> Classifier:
    """A small convolutional net with seeded random weights."""
    with torch.random.fork_rng():
        torch.manual_seed(11)
        network = Network().eval()
    return Classifier(network, Preprocessor(side=32))


def example_inputs() -> list[dict[str, object]]:
    """A batch as TorchServe hands it over: numbers, and an image file."""
    file = Path(__file__).parents[1] / "sample.png"
    return [{"body": {"image": torch.rand(3, 32, 32).tolist()}}, {"body": file.read_bytes()}]
