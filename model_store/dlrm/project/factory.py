"""Builds the recommendation model; nothing here goes into the archive."""

from __future__ import annotations

import torch

from project.model import DLRM

DENSE = 13
TABLES = (4000, 1200, 600, 250, 90, 30, 12, 4)


def build() -> DLRM:
    """DLRM with eight embedding tables of seeded random weights."""
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return DLRM(DENSE, TABLES, width=32, bottom=(128, 64), top=(128, 64)).eval()


def example_inputs() -> tuple[torch.Tensor, list[torch.Tensor], list[torch.Tensor]]:
    """Three rows: dense features, and bags of one, three and no categories in each table."""
    dense = torch.rand(3, DENSE) * 10
    indices = [torch.randint(0, rows, (4,)) for rows in TABLES]
    return dense, indices, [torch.tensor([0, 1, 4]) for _ in TABLES]
