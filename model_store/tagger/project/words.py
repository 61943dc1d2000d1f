"""Words as bags of character n-grams.

Bojanowski et al., "Enriching Word Vectors with Subword Information", 2016 (arXiv:1607.04606).
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import torch
from torch import nn


class WordVectors(nn.Module):
    """A vector for any word, from those of its n-grams.

    Args:
        buckets: how many vectors the n-grams share.
        width: of a vector.
    """

    def __init__(self, buckets: int, width: int) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(buckets, width, mode="sum")

    def forward(self, sentences: Sequence[Sequence[str]]) -> torch.Tensor:
        """(sentences, longest, width) floats, zero after each sentence's end."""
        longest = max(map(len, sentences))
        bags = [self._ngrams(word) for sentence in sentences for word in _padded(sentence, longest)]
        offsets = torch.tensor([0, *map(len, bags[:-1])]).cumsum(0)
        flat = torch.tensor([number for bag in bags for number in bag], dtype=torch.int64)
        return self.table(flat, offsets).unflatten(0, (len(sentences), longest))

    def _ngrams(self, word: str) -> list[int]:
        if not word:
            return []
        marked = f"<{word.lower()}>"
        parts = [marked[at : at + n] for n in (3, 4, 5) for at in range(len(marked) - n + 1)]
        shape = "".join("X" if c.isupper() else "9" if c.isdigit() else "x" for c in word)
        return [zlib.crc32(part.encode()) % self.table.num_embeddings for part in (*parts, marked, shape)]


def _padded(sentence: Sequence[str], length: int) -> list[str]:
    return [*sentence, *[""] * (length - len(sentence))]
