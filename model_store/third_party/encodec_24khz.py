"""encodec's audio codec: convolutions, an LSTM, a residual vector quantizer."""

from __future__ import annotations

import torch
from encodec import EncodecModel
from torch import nn


def build() -> nn.Module:
    """The published model for 24 kHz with random weights."""
    torch.manual_seed(0)
    return EncodecModel.encodec_model_24khz(pretrained=False)


def example_inputs() -> torch.Tensor:
    """A quarter of a second of sound, (1, 1, 6000) floats."""
    return torch.rand(1, 1, 6000) * 2 - 1
