"""From request bodies to image tensors; the other recipe's module of this name tokenizes text."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import torch
from PIL import Image


class Preprocessor:
    """Turns images into a batch of normalised tensors of one size."""

    def __init__(self, side: int, mean: float = 0.5, deviation: float = 0.25) -> None:
        self.side = side
        self.mean = mean
        self.deviation = deviation

    def batch(self, rows: list[Any]) -> torch.Tensor:
        """Decode request bodies: ``{"image": [3][side][side] numbers}``, or an encoded image."""
        images = torch.stack([self._image(row) for row in rows])
        return (images - self.mean) / self.deviation

    def _image(self, row: Any) -> torch.Tensor:
        if isinstance(row, dict):
            pixels = torch.tensor(row["image"], dtype=torch.float32)
            if pixels.shape != (3, self.side, self.side):
                raise ValueError(f"the image must be 3x{self.side}x{self.side}, not {[*pixels.shape]}")
            return pixels
        with Image.open(io.BytesIO(row)) as image:
            small = image.convert("RGB").resize((self.side, self.side))
        return torch.from_numpy(np.array(small)).permute(2, 0, 1).float() / 255
