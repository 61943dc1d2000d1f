"""From request bodies to token ids; the other recipe's module of this name decodes images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class Preprocessor:
    """Turns texts into a padded batch of token ids."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

    def batch(self, rows: list[Any]) -> dict[str, torch.Tensor]:
        """Encode request bodies: ``{"text": ...}``, a string, or UTF-8 bytes."""
        encoded = self.tokenizer.encode_batch([_text(row) for row in rows])
        return {
            "input_ids": torch.tensor([each.ids for each in encoded]),
            "attention_mask": torch.tensor([each.attention_mask for each in encoded]),
        }


def _text(row: Any) -> str:
    if isinstance(row, dict):
        row = row["text"]
    return row.decode("utf-8") if isinstance(row, (bytes, bytearray)) else str(row)
