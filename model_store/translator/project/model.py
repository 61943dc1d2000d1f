"""A transformer that translates, greedily.

Vaswani et al., "Attention Is All You Need", 2017 (arXiv:1706.03762), with the
normalisation before each part (Xiong et al., 2020, arXiv:2002.04745).
"""

from __future__ import annotations

import math

import torch
from torch import nn

from project.layers import DecoderLayer, EncoderLayer
from project.tokens import END, PAD, START, VOCABULARY, decode, encode


class Translator(nn.Module):
    """Texts in, texts out.

    Args:
        width: of the vectors between layers.
        heads: of each attention.
        layers: of the encoder, and of the decoder.
        longest: how many tokens it reads or makes at most.
    """

    def __init__(self, width: int, heads: int, layers: int, longest: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width, padding_idx=PAD)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        self.encoder = nn.ModuleList(EncoderLayer(width, heads, 4 * width) for _ in range(layers))
        self.decoder = nn.ModuleList(DecoderLayer(width, heads, 4 * width) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.scores = nn.Linear(width, VOCABULARY)
        self.register_buffer("positions", _waves(longest, width), persistent=False)

    def forward(self, texts: list[str]) -> list[str]:
        """Translate; one text for each."""
        return decode(self.generate(encode(texts)))

    def generate(self, source: torch.Tensor) -> torch.Tensor:
        """The most likely next token, again and again, until every text has its END.

        Args:
            source: (texts, tokens) ids, padded.

        Returns:
            (texts, tokens made) ids; after a text's END there are PADs.
        """
        source = source[:, : len(self.positions)]
        mask = (source != PAD)[:, None, None, :]
        encoded = self._encode(source, mask)
        states = [layer.begin(encoded) for layer in self.decoder]
        token = torch.full((len(source), 1), START)
        made: list[torch.Tensor] = []
        ended = torch.zeros(len(source), 1, dtype=torch.bool)
        while len(made) < len(self.positions) and not bool(ended.all()):
            x = self._embed(token, at=len(made))
            for layer, state in zip(self.decoder, states, strict=True):
                x = layer(x, state, mask)
            scores = self.scores(self.norms[1](x))
            scores[..., [PAD, START]] = -torch.inf
            token = scores.argmax(dim=-1).masked_fill(ended, PAD)
            ended |= token == END
            made.append(token)
        return torch.cat(made, dim=1)

    def _encode(self, source: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = self._embed(source, at=0)
        for layer in self.encoder:
            x = layer(x, mask)
        return self.norms[0](x)

    def _embed(self, tokens: torch.Tensor, at: int) -> torch.Tensor:
        places = self.positions[at : at + tokens.shape[1]]
        return self.embedding(tokens) * math.sqrt(places.shape[1]) + places


def _waves(count: int, width: int) -> torch.Tensor:
    """The paper's positions, (count, width): sines and cosines of falling frequencies."""
    rates = torch.exp(torch.arange(0, width, 2) * (-math.log(10_000) / width))
    angles = torch.arange(count)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
