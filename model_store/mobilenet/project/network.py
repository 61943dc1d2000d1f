"""MobileNetV3-Small.

Howard et al., "Searching for MobileNetV3", 2019 (arXiv:1905.02244), table 2.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn

from project.layers import ConvNorm, InvertedResidual, divisible


class Row(NamedTuple):
    """One row of the paper's table: kernel, expansion size, outputs, SE, h-swish, stride."""

    kernel: int
    hidden: int
    outputs: int
    excite: bool
    hard: bool
    stride: int


SMALL = (
    Row(3, 16, 16, True, False, 2),
    Row(3, 72, 24, False, False, 2),
    Row(3, 88, 24, False, False, 1),
    Row(5, 96, 40, True, True, 2),
    Row(5, 240, 40, True, True, 1),
    Row(5, 240, 40, True, True, 1),
    Row(5, 120, 48, True, True, 1),
    Row(5, 144, 48, True, True, 1),
    Row(5, 288, 96, True, True, 2),
    Row(5, 576, 96, True, True, 1),
    Row(5, 576, 96, True, True, 1),
)


class MobileNetV3(nn.Module):
    """Scores of ``classes`` classes.

    Args:
        classes: how many.
        width: factor on every layer's channels.
    """

    def __init__(self, classes: int, width: float = 1.0) -> None:
        super().__init__()
        channels = divisible(16 * width)
        layers: list[nn.Module] = [ConvNorm(3, channels, 3, nn.Hardswish(), stride=2)]
        for row in SMALL:
            outputs, hidden = divisible(row.outputs * width), divisible(row.hidden * width)
            layers.append(
                InvertedResidual(
                    channels,
                    outputs,
                    kernel=row.kernel,
                    hidden=hidden,
                    excite=row.excite,
                    hard=row.hard,
                    stride=row.stride,
                )
            )
            channels = outputs
        last = 6 * channels
        self.features = nn.Sequential(*layers, ConvNorm(channels, last, 1, nn.Hardswish()))
        self.classifier = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(last, divisible(1024 * width)),
            nn.Hardswish(),
            nn.Dropout(0.2),
            nn.Linear(divisible(1024 * width), classes),
        )
        for layer in self.classifier:
            if isinstance(layer, nn.Linear):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """(images, 3, height, width) floats to (images, classes) scores."""
        return self.classifier(self.features(images))
