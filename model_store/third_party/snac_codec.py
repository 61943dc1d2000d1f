"""snac's audio codec, whose quantizers work at several rates."""

from __future__ import annotations

import torch
from snac import SNAC
from torch import nn
from torch.nn.utils import parametrize


def build() -> nn.Module:
    """A narrow one with random weights."""
    torch.manual_seed(0)
    model = SNAC(
        encoder_dim=16,
        encoder_rates=[3, 3, 7, 7],
        decoder_dim=128,
        decoder_rates=[7, 7, 3, 3],
        attn_window_size=None,
        codebook_size=256,
        codebook_dim=8,
    )
    # A parametrized module cannot be pickled: fold the weight norm into plain weights, and
    # drop the hook that it leaves for old checkpoints.
    for module in model.modules():
        if parametrize.is_parametrized(module, "weight"):
            parametrize.remove_parametrizations(module, "weight")
            module._load_state_dict_pre_hooks.clear()
    return model


def example_inputs() -> torch.Tensor:
    """A quarter of a second of sound, (1, 1, 7056) floats."""
    return torch.rand(1, 1, 7056) * 2 - 1
