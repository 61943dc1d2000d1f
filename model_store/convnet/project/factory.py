"""Builds the image classifier; nothing here goes into the archive."""

from __future__ import annotations

import io

import torch
from PIL import Image

from project.model import Classifier, Network
from project.preprocessing import Preprocessor


def build() -> Classifier:
    """A small convolutional net with seeded random weights."""
    with torch.random.fork_rng():
        torch.manual_seed(11)
        network = Network().eval()
    return Classifier(network, Preprocessor(side=32))


def example_inputs() -> list[dict[str, object]]:
    """A batch of two requests, one of each kind: what no example needs would be left out."""
    file = io.BytesIO()
    Image.radial_gradient("L").save(file, "PNG")
    return [{"body": {"image": torch.rand(3, 32, 32).tolist()}}, {"body": file.getvalue()}]
