"""x-transformers' decoder with rotary positions."""

from __future__ import annotations

import torch
from torch import nn
from x_transformers import Decoder, TransformerWrapper


def build() -> nn.Module:
    """Random weights."""
    torch.manual_seed(0)
    layers = Decoder(dim=128, depth=3, heads=4, rotary_pos_emb=True)
    return TransformerWrapper(num_tokens=256, max_seq_len=128, attn_layers=layers)


def example_inputs() -> torch.Tensor:
    """Two rows of token ids, (2, 20) int64."""
    return torch.randint(0, 256, (2, 20))
