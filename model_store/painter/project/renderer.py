"""The neural renderer: strokes as images, by a network that has learned how a brush paints.

Shi et al., "Real-Time Single Image and Video Super-Resolution Using an Efficient Sub-Pixel
Convolutional Neural Network", 2016 (arXiv:1609.05158), for its upsampling.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import nn

from project.strokes import SHAPE


class Renderer(nn.Module):
    """Where each stroke covers the canvas.

    Args:
        hidden: widths of the hidden layers, 512, 1024 and 2048 in the paper's code.
        side: of the canvas, a multiple of 8; 128 in the paper.
    """

    def __init__(self, hidden: Sequence[int], side: int) -> None:
        super().__init__()
        self.side = side
        widths = [SHAPE, *hidden, 16 * (side // 8) ** 2]
        dense: list[nn.Module] = []
        for inputs, outputs in pairwise(widths):
            dense += [nn.Linear(inputs, outputs), nn.ReLU()]
        self.dense = nn.Sequential(*dense)
        upsampled: list[nn.Module] = []
        for inputs, between, outputs in ((16, 32, 32), (8, 16, 16), (4, 8, 4)):
            upsampled += [nn.Conv2d(inputs, between, 3, padding=1), nn.ReLU()]
            upsampled += [nn.Conv2d(between, outputs, 3, padding=1), nn.PixelShuffle(2)]
        self.upsampled = nn.Sequential(*upsampled)
        for layer in self.modules():
            if isinstance(layer, (nn.Linear, nn.Conv2d)):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")

    def forward(self, strokes: torch.Tensor) -> torch.Tensor:
        """(strokes, SHAPE) to (strokes, side, side): 0 where the brush has not been, up to 1."""
        small = self.dense(strokes).unflatten(1, (16, self.side // 8, self.side // 8))
        return 1 - torch.sigmoid(self.upsampled(small)).squeeze(1)
