"""torch_geometric's graph convolutional network."""

from __future__ import annotations

import torch
from torch import nn
from torch_geometric.nn import GCN


def build() -> nn.Module:
    """Random weights."""
    torch.manual_seed(0)
    return GCN(in_channels=16, hidden_channels=64, num_layers=3, out_channels=7)


def example_inputs() -> dict[str, torch.Tensor]:
    """A graph: 30 nodes with 16 numbers each, 90 edges as (2, 90) int64."""
    return {"x": torch.rand(30, 16), "edge_index": torch.randint(0, 30, (2, 90))}
