"""Texts as token ids: the bytes of their UTF-8, after a few ids with a meaning of their own."""

from __future__ import annotations

from collections.abc import Sequence

import torch

PAD, START, END = 0, 1, 2
_SPECIAL = 3
VOCABULARY = 256 + _SPECIAL


def encode(texts: Sequence[str]) -> torch.Tensor:
    """Padded token ids, (texts, longest) int64, each text followed by END."""
    rows = [[byte + _SPECIAL for byte in text.encode("utf-8")] + [END] for text in texts]
    longest = max(map(len, rows))
    return torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])


def decode(tokens: torch.Tensor) -> list[str]:
    """The texts of (texts, tokens) ids; what follows END, and ids without a byte, is left out."""
    texts = []
    for row in tokens.tolist():
        kept = row[: row.index(END)] if END in row else row
        texts.append(bytes(token - _SPECIAL for token in kept if token >= _SPECIAL))
    return [text.decode("utf-8", errors="replace") for text in texts]
