"""vocos' vocoder: from a mel spectrogram to sound, by an inverse Fourier transform."""

from __future__ import annotations

import torch
from torch import nn
from vocos import Vocos
from vocos.feature_extractors import MelSpectrogramFeatures
from vocos.heads import ISTFTHead
from vocos.models import VocosBackbone


def build() -> nn.Module:
    """A narrow one with random weights."""
    torch.manual_seed(0)
    return Vocos(
        feature_extractor=MelSpectrogramFeatures(sample_rate=24000, n_fft=1024, hop_length=256, n_mels=80),
        backbone=VocosBackbone(input_channels=80, dim=128, intermediate_dim=256, num_layers=4),
        head=ISTFTHead(dim=128, n_fft=1024, hop_length=256, padding="center"),
    )


def example_inputs() -> torch.Tensor:
    """Half a second of sound, (1, 12000) floats."""
    return torch.rand(1, 12000) * 2 - 1
