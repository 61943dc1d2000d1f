"""The context switching network: each prior is combined with the image before it is believed.

Sengupta et al., "Background Matting: The World is Your Green Screen", 2020 (arXiv:2004.00626).
"""

from __future__ import annotations

import torch
from torch import nn

PRIORS = {"background": 3, "guess": 1}  # with their channels


class Residual(nn.Module):
    """Two convolutions over mirrored borders, and a way around them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.ReflectionPad2d(1), nn.Conv2d(channels, channels, 3), nn.BatchNorm2d(channels), nn.ReLU(),
            nn.ReflectionPad2d(1), nn.Conv2d(channels, channels, 3), nn.BatchNorm2d(channels),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(images, channels, height, width) to the same."""
        return x + self.layers(x)


class ContextSwitching(nn.Module):
    """An image and priors in, what is before the background and how opaque it is out.

    Args:
        channels: of the first layers, 64 in the paper.
        shared: residual blocks that both outputs share, 7 in the paper.
        split: those that each output has for itself, 3 in the paper.
    """

    def __init__(self, channels: int = 64, shared: int = 7, split: int = 3) -> None:
        super().__init__()
        wide = 4 * channels
        self.image = _encoder(3, channels)
        self.priors = nn.ModuleDict({name: _encoder(inputs, channels) for name, inputs in PRIORS.items()})
        self.selectors = nn.ModuleDict({name: _selector(2 * wide, channels) for name in PRIORS})
        self.combinator = _selector(wide + channels * len(PRIORS), wide)
        self.shared = nn.Sequential(*(Residual(wide) for _ in range(shared)))
        self.alpha = nn.Sequential(*(Residual(wide) for _ in range(split)), *_decoder(wide, 1), nn.Tanh())
        self.front = nn.Sequential(*(Residual(wide) for _ in range(split)))
        self.colours = nn.Sequential(*_decoder(wide, 3))
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        nn.init.normal_(self.colours[-1].weight, std=0.01)

    def forward(self, image: torch.Tensor, priors: dict[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Of (images, 3, height, width), sides multiples of 4, and PRIORS alike: opacity and foreground."""
        seen = self.image(image)
        believed = [
            selector(torch.cat([seen, self.priors[name](priors[name])], dim=1))
            for name, selector in self.selectors.items()
        ]
        x = self.shared(self.combinator(torch.cat([seen, *believed], dim=1)))
        return (self.alpha(x) + 1) / 2, self.colours(self.front(x))


def _encoder(inputs: int, channels: int) -> nn.Sequential:
    layers: list[nn.Module] = [nn.ReflectionPad2d(3), *_convolved(inputs, channels, 7, 1)]
    for width in (channels, 2 * channels):
        layers += _convolved(width, 2 * width, 3, 2)
    return nn.Sequential(*layers)


def _convolved(inputs: int, outputs: int, kernel: int, stride: int) -> list[nn.Module]:
    padding = 1 if stride == 2 else 0
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False)
    return [convolution, nn.BatchNorm2d(outputs), nn.ReLU()]


def _selector(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(*_convolved(inputs, outputs, 1, 1))


def _decoder(channels: int, outputs: int) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for width in (channels, channels // 2):
        layers += [nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)]
        layers += [nn.ReflectionPad2d(1), *_convolved(width, width // 2, 3, 1)]
    return [*layers, nn.ReflectionPad2d(3), nn.Conv2d(channels // 4, outputs, 7)]
