"""The gpu benchmark's model: a transformer's encoder."""

from __future__ import annotations

import os

import torch

NAME = "large"
SHAPE = (1, 128, 1024)


def large() -> torch.nn.Module:
    """``[1, 128, 1024]``: as many layers as $GPU_LAYERS says, 50 MB of weights each."""
    torch.manual_seed(0)
    layers = int(os.environ["GPU_LAYERS"])
    layer = torch.nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True)
    return torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).eval()


def inputs(device: str) -> torch.Tensor:
    """What it is asked."""
    count = int(torch.tensor(SHAPE).prod().item())
    return torch.linspace(-1.0, 1.0, count).reshape(SHAPE).to(device)
