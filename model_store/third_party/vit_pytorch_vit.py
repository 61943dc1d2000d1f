"""vit-pytorch's ViT."""

from __future__ import annotations

import torch
from torch import nn
from vit_pytorch import ViT


def build() -> nn.Module:
    """Random weights."""
    torch.manual_seed(0)
    return ViT(image_size=64, patch_size=16, num_classes=10, dim=192, depth=4, heads=3, mlp_dim=384)


def example_inputs() -> torch.Tensor:
    """Two images, (2, 3, 64, 64) floats."""
    return torch.rand(2, 3, 64, 64)
