"""Layers of encoder and decoder, each normalising its input first."""

from __future__ import annotations

import torch
from torch import nn

from project.attention import Attention, Memory


class FeedForward(nn.Sequential):
    """Two linear layers with ReLU between them."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, width))


class EncoderLayer(nn.Module):
    """Attention among the source's tokens, and a feed-forward network."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.attention = Attention(width, heads)
        self.feed_forward = FeedForward(width, hidden)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """(texts, tokens, width) to the same; ``mask`` as in Attention."""
        normed = self.norms[0](x)
        x = x + self.attention(normed, self.attention.remember(normed), mask)
        return x + self.feed_forward(self.norms[1](x))


class State:
    """What one decoder layer remembers: the tokens made so far, and the source."""

    def __init__(self, source: Memory) -> None:
        self.own: Memory | None = None
        self.source = source


class DecoderLayer(nn.Module):
    """Attention to the tokens made so far, attention to the source, and a feed-forward network."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.own = Attention(width, heads)
        self.source = Attention(width, heads)
        self.feed_forward = FeedForward(width, hidden)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))

    def begin(self, encoded: torch.Tensor) -> State:
        """The state before the first token."""
        return State(self.source.remember(encoded))

    def forward(self, x: torch.Tensor, state: State, mask: torch.Tensor) -> torch.Tensor:
        """One more token, (texts, 1, width); adds it to the state."""
        normed = self.norms[0](x)
        state.own = self.own.remember(normed, state.own)
        x = x + self.own(normed, state.own)
        x = x + self.source(self.norms[1](x), state.source, mask)
        return x + self.feed_forward(self.norms[2](x))
