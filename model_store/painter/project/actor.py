"""The policy: a ResNet-18 that sees canvas, picture, time and places, and answers with strokes.

He et al., "Deep Residual Learning for Image Recognition", 2015 (arXiv:1512.03385); Liu et al.,
"An Intriguing Failing of Convolutional Neural Networks and the CoordConv Solution", 2018
(arXiv:1807.03247).
"""

from __future__ import annotations

import torch
from torch import nn

from project.strokes import ACTION

SEEN = 3 + 3 + 1 + 2  # canvas, picture, time, two coordinates


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
        self.around: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            straight = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.around = nn.Sequential(straight, nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(images, inputs, height, width) to (images, outputs, height/stride, width/stride)."""
        return torch.relu(self.layers(x) + self.around(x))


class Actor(nn.Module):
    """What to do next.

    Args:
        channels: of the first layer, 64 in the paper.
    """

    def __init__(self, channels: int = 64) -> None:
        super().__init__()
        layers: list[nn.Module] = [
            nn.Conv2d(SEEN, channels, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
        ]
        width = channels
        for level in range(4):
            wider = channels * 2**level
            layers += [Block(width, wider, stride=2), Block(wider, wider, stride=1)]
            width = wider
        self.features = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.action = nn.Linear(width, ACTION)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        nn.init.normal_(self.action.weight, std=0.02)

    def forward(self, canvas: torch.Tensor, picture: torch.Tensor, time: float) -> torch.Tensor:
        """The next strokes, (images, ACTION) numbers from 0 to 1.

        Args:
            canvas: (images, 3, side, side) floats from 0 to 1: what is painted.
            picture: likewise: what is to be painted.
            time: from 0 to 1, how much of it has passed.
        """
        side = canvas.shape[-1]
        places = torch.linspace(0, 1, side).expand(len(canvas), 1, side, side)
        passed = torch.full_like(places, time)
        seen = torch.cat([canvas, picture, passed, places.transpose(2, 3), places], dim=1)
        return torch.sigmoid(self.action(self.features(seen)))
