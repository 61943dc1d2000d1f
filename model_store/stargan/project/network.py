"""StarGAN's generator: one network for all pairs of domains.

Choi et al., "StarGAN: Unified Generative Adversarial Networks for Multi-Domain Image-to-Image
Translation", 2018 (arXiv:1711.09020), table 4.
"""

from __future__ import annotations

import torch
from torch import nn


class Residual(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            _norm(channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            _norm(channels),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(images, channels, height, width) to the same."""
        return x + self.main(x)


class Generator(nn.Module):
    """Images and the attributes that they are to have in, images out.

    Args:
        attributes: how many.
        channels: of the first layer, 64 in the paper.
        repeats: residual blocks.
    """

    def __init__(self, attributes: int, channels: int = 64, repeats: int = 6) -> None:
        super().__init__()
        layers = [*_convolved(3 + attributes, channels, 7, 1)]
        for _ in range(2):
            layers += _convolved(channels, 2 * channels, 4, 2)
            channels *= 2
        layers += [Residual(channels) for _ in range(repeats)]
        for _ in range(2):
            up = nn.ConvTranspose2d(channels, channels // 2, 4, stride=2, padding=1, bias=False)
            layers += [up, _norm(channels // 2), nn.ReLU(inplace=True)]
            channels //= 2
        layers += [nn.Conv2d(channels, 3, 7, padding=3, bias=False), nn.Tanh()]
        self.main = nn.Sequential(*layers)

    def forward(self, images: torch.Tensor, attributes: torch.Tensor) -> torch.Tensor:
        """(images, 3, height, width) and (images, attributes) to (images, 3, height, width)."""
        planes = attributes[:, :, None, None].expand(-1, -1, *images.shape[2:])
        return self.main(torch.cat([images, planes], dim=1))


def _convolved(inputs: int, outputs: int, kernel: int, stride: int) -> list[nn.Module]:
    padding = (kernel - stride) // 2
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False)
    return [convolution, _norm(outputs), nn.ReLU(inplace=True)]


def _norm(channels: int) -> nn.Module:
    return nn.InstanceNorm2d(channels, affine=True)
