"""timm's ViT-Tiny, a model out of a registry."""

from __future__ import annotations

import timm
import torch
from torch import nn


def build() -> nn.Module:
    """The published configuration with random weights, for images of 64 by 64."""
    torch.manual_seed(0)
    return timm.create_model("vit_tiny_patch16_224", pretrained=False, img_size=64, num_classes=10)


def example_inputs() -> torch.Tensor:
    """Two images, (2, 3, 64, 64) floats."""
    return torch.rand(2, 3, 64, 64)
