"""torchvision's SSDlite detector, whose non-maximum suppression is compiled code of torchvision's."""

from __future__ import annotations

import torch
from torch import nn
from torchvision.models.detection import ssdlite320_mobilenet_v3_large


def build() -> nn.Module:
    """The published configuration with random weights and five classes."""
    torch.manual_seed(0)
    return ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=5, score_thresh=0.0)


def example_inputs() -> list[torch.Tensor]:
    """One argument: a list of two images of different sizes, (3, height, width) floats."""
    return [torch.rand(3, 120, 160), torch.rand(3, 96, 96)]
