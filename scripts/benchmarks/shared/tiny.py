"""A small, Python-heavy model: twenty tiny layers, more interpreter than arithmetic."""

from __future__ import annotations

import time

import torch

LAYERS = 20
WIDTH = 8


class TinyMLP(torch.nn.Module):
    """``[n, 8] -> [n, 8]``, float32; weights from a fixed seed."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))
        for parameter in self.parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator) / 3

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def iterate(seconds: float) -> int:
    """Run the model over and over for that long; returns how often it ran.

    Called by several threads at once in the one-interpreter configuration, which
    is why each call has a model of its own.
    """
    model = TinyMLP()
    x = torch.ones(1, WIDTH)
    count = 0
    with torch.inference_mode():
        for _ in range(50):
            model(x)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            for _ in range(20):
                model(x)
            count += 20
    return count
