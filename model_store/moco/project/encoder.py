"""The encoder: ResNet-50, and two layers on top, as in MoCo's second version.

He et al., "Deep Residual Learning for Image Recognition", 2015 (arXiv:1512.03385).
"""

from __future__ import annotations

import torch
from torch import nn

STAGES = (3, 4, 6, 3)


class Bottleneck(nn.Module):
    """Narrows, convolves, and widens again; and a way around."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.layers = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, stride, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs),
        )  # fmt: skip
        self.around: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            straight = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.around = nn.Sequential(straight, nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(images, inputs, height, width) to (images, 4 x width, height/stride, width/stride)."""
        return torch.relu(self.layers(x) + self.around(x))


class Encoder(nn.Sequential):
    """(images, 3, height, width) floats to (images, features).

    Args:
        features: numbers for an image.
        width: of the first layer, 64 in the paper.
    """

    def __init__(self, features: int, width: int = 64) -> None:
        layers: list[nn.Module] = [
            nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2, padding=1),
        ]
        channels = width
        for stage, blocks in enumerate(STAGES):
            for block in range(blocks):
                narrow = width * 2**stage
                layers.append(Bottleneck(channels, narrow, stride=2 if stage and not block else 1))
                channels = 4 * narrow
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        super().__init__(*layers, nn.Linear(channels, channels), nn.ReLU(), nn.Linear(channels, features))
