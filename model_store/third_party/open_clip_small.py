"""open_clip's CLIP: an image and a text encoder."""

from __future__ import annotations

import torch
from open_clip import CLIP
from open_clip.model import CLIPTextCfg, CLIPVisionCfg
from torch import nn


def build() -> nn.Module:
    """A small one with random weights."""
    torch.manual_seed(0)
    return CLIP(
        embed_dim=64,
        vision_cfg=CLIPVisionCfg(layers=3, width=128, head_width=32, patch_size=16, image_size=64),
        text_cfg=CLIPTextCfg(context_length=16, vocab_size=500, width=64, heads=4, layers=3),
    )


def example_inputs() -> dict[str, torch.Tensor]:
    """Images and texts: (2, 3, 64, 64) floats, (2, 16) token ids."""
    return {"image": torch.rand(2, 3, 64, 64), "text": torch.randint(1, 500, (2, 16))}
