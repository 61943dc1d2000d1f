"""From characters to the vectors that the decoder attends to."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from project.text import PAD, SYMBOLS


class Encoder(nn.Module):
    """Three convolutions over the characters, and an LSTM in both directions.

    Args:
        width: of its vectors.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(SYMBOLS, width, padding_idx=PAD)
        self.convolutions = nn.Sequential(*(layer for _ in range(3) for layer in _block(width)))
        self.lstm = nn.LSTM(width, width // 2, batch_first=True, bidirectional=True)

    def forward(self, characters: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """(texts, characters) ids to (texts, characters, width) floats, zero after each text's end."""
        x = self.convolutions(self.embedding(characters).transpose(1, 2)).transpose(1, 2)
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        made, _ = self.lstm(packed)
        padded, _ = pad_packed_sequence(made, batch_first=True, total_length=characters.shape[1])
        return padded


def _block(width: int) -> tuple[nn.Module, ...]:
    return nn.Conv1d(width, width, 5, padding=2), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.5)
