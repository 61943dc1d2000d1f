"""From encoded characters to mel frames, one after another."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from project.attention import LocationSensitiveAttention


class Prenet(nn.Module):
    """Two layers with dropout, which the paper keeps on when speaking, for variety."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(inputs, width), nn.Linear(width, width)])
        for layer in self.layers:
            nn.init.xavier_uniform_(layer.weight, gain=nn.init.calculate_gain("relu"))

    def forward(self, frame: torch.Tensor) -> torch.Tensor:
        """(texts, mels) to (texts, width). Draws random numbers."""
        for layer in self.layers:
            frame = functional.dropout(torch.relu(layer(frame)), 0.5, training=True)
        return frame


class Decoder(nn.Module):
    """Prenet, an LSTM that attends, an LSTM that speaks, and a gate that says when to stop.

    Args:
        memory: width of the encoder's vectors.
        width: of the LSTMs.
        mels: numbers in a frame.
        longest: frames made at most.
    """

    def __init__(self, memory: int, width: int, mels: int, longest: int) -> None:
        super().__init__()
        self.mels = mels
        self.longest = longest
        self.prenet = Prenet(mels, width // 4)
        self.listener = nn.LSTMCell(width // 4 + memory, width)
        self.attention = LocationSensitiveAttention(width, memory, width // 8, filters=32)
        self.speaker = nn.LSTMCell(width + memory, width)
        self.frame = nn.Linear(width + memory, mels)
        self.gate = nn.Linear(width + memory, 1)
        nn.init.normal_(self.gate.weight)

    def forward(self, memory: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Speak until every text's gate has closed.

        Args:
            memory: (texts, characters, width of the memory).
            mask: (texts, characters), True where there is a character.

        Returns:
            Frames, (texts, frames, mels), and how many each text has, (texts,) int64.
        """
        keys = self.attention.memory(memory)
        texts, characters, width = memory.shape
        frame = memory.new_zeros(texts, self.mels)
        context = memory.new_zeros(texts, width)
        weights = memory.new_zeros(texts, 2, characters)
        heard: tuple[torch.Tensor, torch.Tensor] | None = None
        said: tuple[torch.Tensor, torch.Tensor] | None = None
        lengths = torch.zeros(texts, dtype=torch.int64)
        open_ = torch.ones(texts, dtype=torch.bool)
        frames: list[torch.Tensor] = []
        while len(frames) < self.longest and bool(open_.any()):
            heard = self.listener(torch.cat([self.prenet(frame), context], dim=1), heard)
            context, last = self.attention(heard[0], memory, keys, weights, mask)
            weights = torch.stack([last, weights[:, 1] + last], dim=1)
            said = self.speaker(torch.cat([heard[0], context], dim=1), said)
            both = torch.cat([said[0], context], dim=1)
            frame = self.frame(both)
            frames.append(frame)
            lengths += open_
            open_ &= self.gate(both).squeeze(1) <= 0
        return torch.stack(frames, dim=1), lengths
