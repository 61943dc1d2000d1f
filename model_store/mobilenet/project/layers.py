"""The blocks of MobileNetV3."""

from __future__ import annotations

import torch
from torch import nn


class ConvNorm(nn.Sequential):
    """A convolution without bias, batch normalisation, and an activation."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int, activation: nn.Module, stride: int = 1, groups: int = 1
    ) -> None:
        convolution = nn.Conv2d(
            inputs, outputs, kernel, stride, padding=kernel // 2, groups=groups, bias=False
        )
        nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
        super().__init__(
            convolution,
            nn.BatchNorm2d(outputs, eps=0.001, momentum=0.01),
            activation,
        )


class SqueezeExcite(nn.Module):
    """Scales each channel by a number that is computed from all channels' means."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        squeezed = divisible(channels / 4)
        self.scale = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, squeezed, 1),
            nn.ReLU(),
            nn.Conv2d(squeezed, channels, 1),
            nn.Hardsigmoid(),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(images, channels, height, width) to the same."""
        return x * self.scale(x)


class InvertedResidual(nn.Module):
    """Widens, convolves each channel by itself, and narrows again."""

    def __init__(
        self, inputs: int, outputs: int, *, kernel: int, hidden: int, excite: bool, hard: bool, stride: int
    ) -> None:
        super().__init__()
        activation = nn.Hardswish if hard else nn.ReLU
        layers: list[nn.Module] = []
        if hidden != inputs:
            layers.append(ConvNorm(inputs, hidden, 1, activation()))
        layers.append(ConvNorm(hidden, hidden, kernel, activation(), stride, groups=hidden))
        if excite:
            layers.append(SqueezeExcite(hidden))
        layers.append(ConvNorm(hidden, outputs, 1, nn.Identity()))
        self.layers = nn.Sequential(*layers)
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(images, inputs, height, width) to (images, outputs, height/stride, width/stride)."""
        made = self.layers(x)
        return x + made if self.adds else made


def divisible(channels: float, by: int = 8) -> int:
    """The nearest multiple, but never below nine tenths of ``channels``."""
    nearest = max(by, int(channels + by / 2) // by * by)
    return nearest + by if nearest < 0.9 * channels else nearest
