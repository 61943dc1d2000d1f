"""The generator, as CycleGAN has it.

Johnson et al., "Perceptual Losses for Real-Time Style Transfer and Super-Resolution", 2016
(arXiv:1603.08155).
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import nn

from project.options import Norm

MakeNorm = Callable[[int], nn.Module]


def make_norm(norm: Norm) -> MakeNorm:
    """What makes a normalising layer for that many channels."""
    return {
        Norm.INSTANCE: functools.partial(nn.InstanceNorm2d, affine=False),
        Norm.BATCH: functools.partial(nn.BatchNorm2d, affine=True),
        Norm.NONE: nn.Identity,
    }[norm]


class ResnetBlock(nn.Module):
    """Two convolutions over mirrored borders, and a way around them."""

    def __init__(self, channels: int, norm: MakeNorm) -> None:
        super().__init__()
        self.block = nn.Sequential(
            nn.ReflectionPad2d(1),
            nn.Conv2d(channels, channels, 3),
            norm(channels),
            nn.ReLU(True),
            nn.ReflectionPad2d(1),
            nn.Conv2d(channels, channels, 3),
            norm(channels),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(images, channels, height, width) to the same."""
        return x + self.block(x)


class ResnetGenerator(nn.Sequential):
    """Images to images: down to a quarter, residual blocks, up again.

    Args:
        channels: of the first layer.
        blocks: residual ones.
        norm: of all layers but the last.
    """

    def __init__(self, channels: int, blocks: int, norm: Norm) -> None:
        made = make_norm(norm)
        layers: list[nn.Module] = [nn.ReflectionPad2d(3), nn.Conv2d(3, channels, 7), made(channels)]
        layers.append(nn.ReLU(True))
        for width in (channels, 2 * channels):
            down = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
            layers += [down, made(2 * width), nn.ReLU(True)]
        layers += [ResnetBlock(4 * channels, made) for _ in range(blocks)]
        for width in (4 * channels, 2 * channels):
            up = nn.ConvTranspose2d(width, width // 2, 3, stride=2, padding=1, output_padding=1)
            layers += [up, made(width // 2), nn.ReLU(True)]
        layers += [nn.ReflectionPad2d(3), nn.Conv2d(channels, 3, 7), nn.Tanh()]
        super().__init__(*layers)
        for layer in self.modules():
            if isinstance(layer, (nn.Conv2d, nn.ConvTranspose2d)):
                nn.init.normal_(layer.weight, 0.0, 0.02)
