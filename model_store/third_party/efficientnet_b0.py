"""efficientnet_pytorch's EfficientNet-B0."""

from __future__ import annotations

import torch
from efficientnet_pytorch import EfficientNet
from torch import nn


def build() -> nn.Module:
    """The published configuration with random weights."""
    torch.manual_seed(0)
    return EfficientNet.from_name("efficientnet-b0", num_classes=10)


def example_inputs() -> torch.Tensor:
    """Two images, (2, 3, 64, 64) floats."""
    return torch.rand(2, 3, 64, 64)
