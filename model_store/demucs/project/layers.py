"""The layers of Demucs."""

from __future__ import annotations

import torch
from torch import nn


class Encoder(nn.Sequential):
    """A strided convolution, and a gated one."""

    def __init__(self, inputs: int, width: int, kernel: int, stride: int) -> None:
        super().__init__(
            nn.Conv1d(inputs, width, kernel, stride),
            nn.ReLU(),
            nn.Conv1d(width, 2 * width, 1),
            nn.GLU(dim=1),
        )


class Decoder(nn.Module):
    """A gated convolution, and a strided one the other way round."""

    def __init__(self, width: int, outputs: int, kernel: int, stride: int, context: int, last: bool) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(width, 2 * width, context),
            nn.GLU(dim=1),
            nn.ConvTranspose1d(width, outputs, kernel, stride),
            nn.Identity() if last else nn.ReLU(),
        )

    def forward(self, x: torch.Tensor, across: torch.Tensor) -> torch.Tensor:
        """(pieces, width, samples) and what the encoder had there to (pieces, outputs, more samples)."""
        return self.layers(x + across)


class BLSTM(nn.Module):
    """An LSTM in both directions, as wide outside as inside."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(width, width, layers, bidirectional=True)
        self.linear = nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(pieces, width, samples) to the same."""
        return self.linear(self.lstm(x.permute(2, 0, 1))[0]).permute(1, 2, 0)


def rescale(module: nn.Module, reference: float) -> None:
    """Bring first weights nearer to a deviation of ``reference`` (the paper's section 4.2)."""
    for layer in module.modules():
        if isinstance(layer, (nn.Conv1d, nn.ConvTranspose1d)):
            scale = (layer.weight.std().detach() / reference) ** 0.5
            layer.weight.data /= scale
            if layer.bias is not None:
                layer.bias.data /= scale
