"""The parts of DLRM."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import nn


class Perceptron(nn.Sequential):
    """Linear layers with ReLU between them and ``last`` at the end."""

    def __init__(self, widths: Sequence[int], last: nn.Module) -> None:
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(widths):
            linear = nn.Linear(inputs, outputs)
            nn.init.normal_(linear.weight, std=(2 / (inputs + outputs)) ** 0.5)
            nn.init.normal_(linear.bias, std=(1 / outputs) ** 0.5)
            layers += [linear, nn.ReLU()]
        super().__init__(*layers[:-1], last)


class Interaction(nn.Module):
    """Dot products of all pairs of vectors.

    Attributes:
        pairs: how many there are.
    """

    def __init__(self, vectors: int) -> None:
        super().__init__()
        rows, columns = torch.tril_indices(vectors, vectors, offset=-1)
        self.register_buffer("rows", rows, persistent=False)
        self.register_buffer("columns", columns, persistent=False)
        self.pairs = len(rows)

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """(rows, vectors, width) floats to (rows, pairs)."""
        return torch.bmm(vectors, vectors.transpose(1, 2))[:, self.rows, self.columns]
