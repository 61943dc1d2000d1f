"""From images to features: residual blocks.

He et al., "Deep Residual Learning for Image Recognition", 2015 (arXiv:1512.03385).
"""

from __future__ import annotations

import torch
from torch import nn


class Block(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.around = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(images, inputs, height, width) to (images, outputs, height/stride, width/stride)."""
        return torch.relu(self.layers(x) + self.around(x))


class Backbone(nn.Sequential):
    """Features of an eighth of the image's size.

    Args:
        channels: of the features.
    """

    stride = 8

    def __init__(self, channels: int) -> None:
        super().__init__(
            nn.Conv2d(3, channels // 4, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(channels // 4),
            nn.ReLU(),
            Block(channels // 4, channels // 2, stride=2),
            Block(channels // 2, channels, stride=2),
            Block(channels, channels, stride=1),
        )
