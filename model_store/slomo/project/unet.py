"""An encoder and a decoder with ways across.

Ronneberger et al., "U-Net: Convolutional Networks for Biomedical Image Segmentation", 2015
(arXiv:1505.04597), with average pooling and bilinear upsampling, as in Super SloMo.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional


class UNet(nn.Module):
    """Images of any size to images of the same size.

    Args:
        inputs: channels.
        outputs: channels.
        channels: of the first layer; each further one has twice as many, the last one as the one before.
        depth: how often the image is halved.
    """

    def __init__(self, inputs: int, outputs: int, channels: int, depth: int) -> None:
        super().__init__()
        widths = [channels * 2**level for level in range(depth)]
        widths.append(widths[-1])
        self.first = _Pair(inputs, channels, 7)
        self.down = nn.ModuleList(
            _Pair(fewer, more, 5 if level == 0 else 3) for level, (fewer, more) in enumerate(pairwise(widths))
        )
        self.up = nn.ModuleList(
            _Pair(below + across, across, 3)
            for below, across in zip(widths[:0:-1], widths[-2::-1], strict=True)
        )
        self.last = nn.Conv2d(channels, outputs, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(images, inputs, height, width) to (images, outputs, height, width)."""
        height, width = x.shape[2:]
        whole = 2 ** len(self.down)
        x = functional.pad(x, (0, -width % whole, 0, -height % whole), mode="replicate")
        x = self.first(x)
        across = []
        for pair in self.down:
            across.append(x)
            x = pair(functional.avg_pool2d(x, 2))
        for pair in self.up:
            x = functional.interpolate(x, scale_factor=2, mode="bilinear")
            x = pair(torch.cat([x, across.pop()], dim=1))
        return self.last(x)[..., :height, :width]


class _Pair(nn.Sequential):
    """Two convolutions, each with a leaky ReLU."""

    def __init__(self, inputs: int, outputs: int, kernel: int) -> None:
        super().__init__(
            nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2),
            nn.LeakyReLU(0.1),
            nn.Conv2d(outputs, outputs, kernel, padding=kernel // 2),
            nn.LeakyReLU(0.1),
        )
