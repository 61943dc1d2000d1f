"""Location-sensitive attention.

Chorowski et al., "Attention-Based Models for Speech Recognition", 2015 (arXiv:1506.07503).
"""

from __future__ import annotations

import torch
from torch import nn


class LocationSensitiveAttention(nn.Module):
    """Attention that sees where it has looked before, so that it goes on from there.

    Args:
        query: width of the asking vector.
        memory: width of the vectors looked at.
        width: of the space in which they are compared.
        filters: of the convolution over the earlier weights.
    """

    def __init__(self, query: int, memory: int, width: int, filters: int) -> None:
        super().__init__()
        self.query = nn.Linear(query, width, bias=False)
        self.memory = nn.Linear(memory, width, bias=False)
        self.location = nn.Conv1d(2, filters, 31, padding=15, bias=False)
        self.place = nn.Linear(filters, width, bias=False)
        self.score = nn.Linear(width, 1, bias=False)

    def forward(
        self,
        query: torch.Tensor,
        memory: torch.Tensor,
        keys: torch.Tensor,
        weights: torch.Tensor,
        mask: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Look once.

        Args:
            query: (texts, width of the query).
            memory: (texts, characters, width of the memory).
            keys: ``self.memory(memory)``, which is the same for all looks.
            weights: (texts, 2, characters): the last weights, and the sum of all.
            mask: (texts, characters), True where there is a character.

        Returns:
            What was found, (texts, width of the memory), and the weights, (texts, characters).
        """
        place = self.place(self.location(weights).transpose(1, 2))
        scores = self.score(torch.tanh(self.query(query)[:, None] + keys + place)).squeeze(2)
        found = torch.softmax(scores.masked_fill(~mask, -torch.inf), dim=1)
        return torch.bmm(found[:, None], memory).squeeze(1), found
