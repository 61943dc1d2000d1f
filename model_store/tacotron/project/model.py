"""Tacotron 2.

Shen et al., "Natural TTS Synthesis by Conditioning WaveNet on Mel Spectrogram
Predictions", 2017 (arXiv:1712.05884).
"""

from __future__ import annotations

import torch
from torch import nn

from project.decoder import Decoder
from project.encoder import Encoder
from project.text import PAD, encode


class Tacotron(nn.Module):
    """Texts in, mel spectrograms out. Draws random numbers, also in evaluation mode.

    Args:
        width: of the encoder's vectors, 512 in the paper; the decoder's LSTMs have twice that.
        mels: numbers in a frame.
        longest: frames made at most.
    """

    def __init__(self, width: int = 512, mels: int = 80, longest: int = 1000) -> None:
        super().__init__()
        self.encoder = Encoder(width)
        self.decoder = Decoder(width, 2 * width, mels, longest)
        self.postnet = Postnet(mels, width)

    def forward(self, texts: list[str]) -> dict[str, torch.Tensor]:
        """Speak.

        Returns:
            ``mels``: (texts, frames, mels) floats, zero after each text's end; ``lengths``:
            each text's frames, (texts,) int64.
        """
        characters, lengths = encode(texts)
        frames, spoken = self.decoder(self.encoder(characters, lengths), characters != PAD)
        mels = frames + self.postnet(frames.transpose(1, 2)).transpose(1, 2)
        ends = torch.arange(mels.shape[1])[None, :, None] < spoken[:, None, None]
        return {"mels": mels * ends, "lengths": spoken}


class Postnet(nn.Sequential):
    """Five convolutions that say what to add to the frames, (texts, mels, frames)."""

    def __init__(self, mels: int, width: int) -> None:
        layers: list[nn.Module] = []
        for inputs, outputs in ((mels, width), *((width, width),) * 3):
            layers += [nn.Conv1d(inputs, outputs, 5, padding=2), nn.BatchNorm1d(outputs), nn.Tanh()]
            layers += [nn.Dropout(0.5)]
        super().__init__(*layers, nn.Conv1d(width, mels, 5, padding=2), nn.BatchNorm1d(mels), nn.Dropout(0.5))
