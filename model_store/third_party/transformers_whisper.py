"""transformers' Whisper: speech to token ids."""

from __future__ import annotations

import torch
from torch import nn
from transformers import WhisperConfig, WhisperForConditionalGeneration


def build() -> nn.Module:
    """A small one with random weights."""
    torch.manual_seed(0)
    config = WhisperConfig(
        vocab_size=200,
        d_model=64,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        max_source_positions=50,
        max_target_positions=32,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        begin_suppress_tokens=None,
        use_cache=False,
    )
    return WhisperForConditionalGeneration(config)


def example_inputs() -> dict[str, torch.Tensor]:
    """A second of sound as (1, 80, 100) mel floats, and the tokens said so far, (1, 3) int64."""
    return {"input_features": torch.rand(1, 80, 100), "decoder_input_ids": torch.tensor([[1, 5, 7]])}
