"""Demucs: music in, its sources out.

Défossez et al., "Music Source Separation in the Waveform Domain", 2019 (arXiv:1911.13254).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

from project.capture import capture_init
from project.layers import BLSTM, Decoder, Encoder, rescale


class Demucs(nn.Module):
    """A U-Net on waveforms, with an LSTM at its bottom.

    Args:
        sources: names of what is to be separated.
        inputs: channels of the music.
        channels: of the first layer, 64 to 100 in the paper; each further one has twice as many.
        depth: layers, 6 in the paper.
        kernel: of the strided convolutions.
        stride: of these.
        context: of the decoder's other convolutions.
    """

    @capture_init
    def __init__(
        self,
        sources: Sequence[str],
        inputs: int = 2,
        channels: int = 64,
        depth: int = 6,
        kernel: int = 8,
        stride: int = 4,
        context: int = 3,
    ) -> None:
        super().__init__()
        self.sources = list(sources)
        self.inputs = inputs
        self.kernel, self.stride, self.context = kernel, stride, context
        self.encoders = nn.ModuleList()
        self.decoders = nn.ModuleList()
        below, above = inputs, inputs * len(self.sources)
        for level in range(depth):
            width = channels * 2**level
            self.encoders.append(Encoder(below, width, kernel, stride))
            self.decoders.insert(0, Decoder(width, above, kernel, stride, context, last=level == 0))
            below = above = width
        self.lstm = BLSTM(below, layers=2)
        rescale(self, reference=0.1)

    def forward(self, pieces: list[torch.Tensor]) -> list[dict[str, torch.Tensor]]:
        """Separate.

        Args:
            pieces: (inputs, samples) floats each, of any lengths.

        Returns:
            For each piece its sources by name, each like the piece.
        """
        return [dict(zip(self.sources, self.separate(piece), strict=True)) for piece in pieces]

    def separate(self, piece: torch.Tensor) -> torch.Tensor:
        """The sources of one piece, (sources, inputs, samples)."""
        mono = piece.mean(dim=0)
        mean, deviation = mono.mean(), mono.std() + 1e-8
        samples = piece.shape[1]
        missing = self.valid_length(samples) - samples
        x = functional.pad((piece - mean) / deviation, (missing // 2, missing - missing // 2))[None]
        across = []
        for encoder in self.encoders:
            x = encoder(x)
            across.append(x)
        x = self.lstm(x)
        for decoder in self.decoders:
            x = decoder(x, _middle(across.pop(), x.shape[2]))
        x = _middle(x, samples) * deviation + mean
        return x[0].unflatten(0, (len(self.sources), self.inputs))

    def valid_length(self, samples: int) -> int:
        """How long a padded piece must be: as many samples come back at least, and none is left over."""
        length = samples
        for _ in self.encoders:
            length = max(1, math.ceil((length - self.kernel) / self.stride) + 1) + self.context - 1
        for _ in self.decoders:
            length = (length - 1) * self.stride + self.kernel
        return length


def _middle(x: torch.Tensor, length: int) -> torch.Tensor:
    """The middle of (…, samples), that long."""
    before = (x.shape[-1] - length) // 2
    return x[..., before : before + length]
