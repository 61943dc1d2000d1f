"""DLRM: how likely a user is to click on an item.

Naumov et al., "Deep Learning Recommendation Model for Personalization and Recommendation
Systems", 2019 (arXiv:1906.00091).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from project.layers import Interaction, Perceptron


class DLRM(nn.Module):
    """Dense features and bags of categories in, a probability out.

    Args:
        dense: number of dense features.
        tables: number of categories of each sparse feature.
        width: of every embedding.
        bottom: widths of the hidden layers for the dense features.
        top: widths of the hidden layers for the interactions.
    """

    def __init__(
        self, dense: int, tables: Sequence[int], width: int, bottom: Sequence[int], top: Sequence[int]
    ) -> None:
        super().__init__()
        self.bottom = Perceptron([dense, *bottom, width], last=nn.ReLU())
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for rows in tables)
        self.interaction = Interaction(len(tables) + 1)
        self.top = Perceptron([width + self.interaction.pairs, *top, 1], last=nn.Sigmoid())

    def forward(
        self, dense: torch.Tensor, indices: Sequence[torch.Tensor], offsets: Sequence[torch.Tensor]
    ) -> torch.Tensor:
        """Probabilities, (rows,).

        Args:
            dense: (rows, dense) floats.
            indices: for each table the categories of all rows, one after another, int64.
            offsets: for each table where in ``indices`` each row's bag begins, (rows,) int64.
        """
        x = self.bottom(torch.log1p(dense.clamp_min(0)))
        bags = [table(i, o) for table, i, o in zip(self.tables, indices, offsets, strict=True)]
        crossed = self.interaction(torch.stack([x, *bags], dim=1))
        return self.top(torch.cat([x, crossed], dim=1)).squeeze(1)
