"""From request bodies to image tensors, as weights trained on ImageNet want them."""

from __future__ import annotations

import io

import numpy as np
import torch
from PIL import Image, ImageOps

SIDE = 224
MEAN = torch.tensor([0.485, 0.456, 0.406])[:, None, None]
DEVIATION = torch.tensor([0.229, 0.224, 0.225])[:, None, None]


def decode(body: bytes | bytearray) -> torch.Tensor:
    """An encoded image's middle, scaled and normalised: (3, 224, 224) floats."""
    with Image.open(io.BytesIO(body)) as image:
        small = ImageOps.fit(image.convert("RGB"), (SIDE, SIDE))
    pixels = torch.from_numpy(np.array(small)).permute(2, 0, 1).float() / 255
    return (pixels - MEAN) / DEVIATION
