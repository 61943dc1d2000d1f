"""The gpu benchmark's models, in three sizes: a gated tower, a residual network, a transformer's encoder."""

from __future__ import annotations

import os

import torch

TOKENS = 128


class Gated(torch.nn.Module):
    """``[n, width] -> [n, width]``, float32."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.value = torch.nn.Linear(width, width)
        self.gate = torch.nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.value(x)) * torch.sigmoid(self.gate(x))


class Residual(torch.nn.Module):
    """Two convolutions, and past them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(channels, channels, 3, padding=1)
        self.second = torch.nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.second(torch.relu(self.first(x))))


def small() -> torch.nn.Module:
    """``[1, 16]``: launches of kernels, and Python between them."""
    torch.manual_seed(0)
    return torch.nn.Sequential(*(Gated(16) for _ in range(8))).eval()


def medium() -> torch.nn.Module:
    """``[1, 3, 64, 64]``: sixteen convolutions of 64 channels."""
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 64, 3, padding=1),
        *(Residual(64) for _ in range(8)),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(64, 10),
    ).eval()


def large() -> torch.nn.Module:
    """``[1, 128, 1024]``: as many layers of a transformer as $GPU_LAYERS says, 50 MB of weights each."""
    torch.manual_seed(0)
    layers = int(os.environ["GPU_LAYERS"])
    layer = torch.nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True)
    return torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).eval()


MODELS = {"small": small, "medium": medium, "large": large}
SHAPES = {"small": (1, 16), "medium": (1, 3, 64, 64), "large": (1, TOKENS, 1024)}


def inputs_of(name: str, device: str) -> torch.Tensor:
    """What it is asked."""
    shape = SHAPES[name]
    count = torch.tensor(shape).prod().item()
    return torch.linspace(-1.0, 1.0, int(count)).reshape(shape).to(device)
