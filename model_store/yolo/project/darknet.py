"""The network that a description describes.

Redmon and Farhadi, "YOLOv3: An Incremental Improvement", 2018 (arXiv:1804.02767).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from project.description import Section
from project.names import NAMES

NUMBERS = 5 + len(NAMES)  # of a prediction: place, size, confidence, and a score for each name


class Route(nn.Module):
    """Stands for earlier layers' outputs, one after another; see Darknet."""

    def __init__(self, layers: list[int]) -> None:
        super().__init__()
        self.layers = layers


class Shortcut(nn.Module):
    """Stands for the sum of the last output and an earlier one; see Darknet."""

    def __init__(self, layer: int) -> None:
        super().__init__()
        self.layer = layer


class Boxes(nn.Module):
    """Predictions at one scale, as boxes in pixels.

    Args:
        anchors: width and height of each, in pixels.
    """

    def __init__(self, anchors: Sequence[tuple[int, int]]) -> None:
        super().__init__()
        self.register_buffer("anchors", torch.tensor(anchors).float())

    def forward(self, x: torch.Tensor, side: int) -> torch.Tensor:
        """(images, anchors x NUMBERS, rows, columns) to (images, boxes, NUMBERS); ``side`` is the image's."""
        rows, columns = x.shape[2:]
        x = x.unflatten(1, (len(self.anchors), NUMBERS)).permute(0, 1, 3, 4, 2)
        ys, xs = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
        centres = (torch.sigmoid(x[..., :2]) + torch.stack([xs, ys], dim=-1)) * (side / columns)
        sizes = torch.exp(x[..., 2:4]) * self.anchors[:, None, None]
        return torch.cat([centres, sizes, torch.sigmoid(x[..., 4:])], dim=-1).flatten(1, 3)


class Darknet(nn.Module):
    """Square images to predictions at three scales.

    Args:
        sections: of the description.
        width: factor on every layer's channels.
    """

    def __init__(self, sections: Sequence[Section], width: float = 1.0) -> None:
        super().__init__()
        net, *rest = sections
        self.side = net.number("side")
        self.layers = nn.ModuleList()
        self.channels: list[int] = []
        for section in rest:
            before = self.channels[-1] if self.channels else net.number("channels")
            layer, channels = self._layer(section, before, width)
            self.layers.append(layer)
            self.channels.append(channels)

    def _layer(self, section: Section, before: int, width: float) -> tuple[nn.Module, int]:
        """The layer of a section, and its channels."""
        if section.kind == "convolutional":
            predicts = section.settings["filters"] == "predictions"
            filters = 3 * NUMBERS if predicts else int(section.number("filters") * width)
            return _convolution(section, before, filters), filters
        if section.kind == "upsample":
            return nn.Upsample(scale_factor=section.number("stride")), before
        if section.kind == "shortcut":
            # What is added says little at first, so that a tower of additions does not grow beyond measure.
            nn.init.constant_(self.layers[-1].norm.weight, 0.2)
            return Shortcut(section.number("from")), before
        if section.kind == "route":
            layers = section.numbers("layers")
            return Route(layers), sum(self.channels[layer] for layer in layers)
        if section.kind == "yolo":
            flat = section.numbers("anchors")
            return Boxes(list(zip(flat[::2], flat[1::2], strict=True))), before
        raise ValueError(f"no layer is called [{section.kind}]")

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """(images, 3, side, side) floats, the side a multiple of 32, to (images, boxes, NUMBERS)."""
        outputs: list[torch.Tensor] = []
        found = []
        x = images
        for layer in self.layers:
            if isinstance(layer, Route):
                x = torch.cat([outputs[each] for each in layer.layers], dim=1)
            elif isinstance(layer, Shortcut):
                x = outputs[-1] + outputs[layer.layer]
            elif isinstance(layer, Boxes):
                found.append(layer(x, images.shape[-1]))
            else:
                x = layer(x)
            outputs.append(x)
        return torch.cat(found, dim=1)


def _convolution(section: Section, inputs: int, outputs: int) -> nn.Sequential:
    kernel, normed = section.number("size"), bool(section.number("batch_normalize"))
    stride = section.number("stride", 1)
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=not normed)
    nn.init.kaiming_normal_(convolution.weight, a=0.1)
    layers = nn.Sequential()
    layers.add_module("convolution", convolution)
    if normed:
        layers.add_module("norm", nn.BatchNorm2d(outputs))
    else:  # predictions: most places have nothing in them
        nn.init.normal_(convolution.weight, std=2 * inputs**-0.5)
        convolution.bias.data.view(-1, NUMBERS)[:, 4] = -2.0
    if section.settings["activation"] == "leaky":
        layers.add_module("activation", nn.LeakyReLU(0.1))
    return layers
