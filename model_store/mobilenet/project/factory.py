"""Builds the image classifier; nothing here goes into the archive."""

from __future__ import annotations

import io

import torch
from PIL import Image

from project.labels import LABELS
from project.model import Classifier
from project.network import MobileNetV3


def build() -> Classifier:
    """MobileNetV3-Small with seeded random weights."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return Classifier(MobileNetV3(len(LABELS)).eval())


def example_inputs() -> list[dict[str, bytes]]:
    """A batch of two requests, each with a PNG as its body."""
    return [
        {"body": _png(image)} for image in (Image.radial_gradient("L"), Image.new("RGB", (50, 80), "red"))
    ]


def _png(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()
