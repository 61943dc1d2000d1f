"""Texts as ids of characters."""

from __future__ import annotations

from collections.abc import Sequence

import torch

PAD = 0
CHARACTERS = " abcdefghijklmnopqrstuvwxyz'.,;:!?-"
SYMBOLS = len(CHARACTERS) + 1
_IDS = {character: number for number, character in enumerate(CHARACTERS, start=1)}


def encode(texts: Sequence[str]) -> tuple[torch.Tensor, torch.Tensor]:
    """Padded ids, (texts, longest) int64, and how many each text has, (texts,) int64.

    Characters that are not known are left out.
    """
    rows = [[_IDS[each] for each in text.lower() if each in _IDS] or [_IDS[" "]] for text in texts]
    lengths = torch.tensor([len(row) for row in rows])
    longest = int(lengths.max())
    return torch.tensor([row + [PAD] * (longest - len(row)) for row in rows]), lengths
