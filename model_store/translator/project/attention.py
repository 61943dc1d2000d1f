"""Multi-head attention that keeps keys and values from one token to the next."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention


class Memory(NamedTuple):
    """Keys and values seen so far, (texts, heads, tokens, width of a head) floats each."""

    keys: torch.Tensor
    values: torch.Tensor


class Attention(nn.Module):
    """Attention with ``heads`` heads over vectors of ``width`` numbers."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def remember(self, x: torch.Tensor, before: Memory | None = None) -> Memory:
        """Keys and values of ``x``, (texts, tokens, width), after those of ``before``."""
        keys, values = self._split(self.key(x)), self._split(self.value(x))
        if before is None:
            return Memory(keys, values)
        return Memory(torch.cat([before.keys, keys], dim=2), torch.cat([before.values, values], dim=2))

    def forward(self, x: torch.Tensor, memory: Memory, mask: torch.Tensor | None = None) -> torch.Tensor:
        """What ``x``, (texts, tokens, width), finds in the memory.

        Args:
            x: who asks.
            memory: what is looked at.
            mask: True where it may be looked at, broadcastable to (texts, heads, tokens,
                tokens of the memory).
        """
        query = self._split(self.query(x))
        found = scaled_dot_product_attention(query, memory.keys, memory.values, attn_mask=mask)
        return self.out(found.transpose(1, 2).flatten(2))

    def _split(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(2, (self.heads, -1)).transpose(1, 2)
