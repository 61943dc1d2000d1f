"""A model that is nearly all weights: as many megabytes as $INTERPOOL_WEIGHTS_MB says."""

from __future__ import annotations

import os

import torch

_SIDE = 2048  # a matrix of float32 has 16 MiB


class Stack(torch.nn.Module):
    def __init__(self, count: int) -> None:
        super().__init__()
        self.layers = torch.nn.ParameterList(torch.empty(_SIDE, _SIDE) for _ in range(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.layers[0]


def build() -> Stack:
    torch.manual_seed(0)
    model = Stack(max(1, int(os.environ["INTERPOOL_WEIGHTS_MB"]) // 16))
    with torch.no_grad():
        for layer in model.layers:
            layer.normal_()
    return model


def example_inputs() -> torch.Tensor:
    return torch.ones(1, _SIDE)
