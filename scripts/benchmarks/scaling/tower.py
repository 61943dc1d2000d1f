"""A tower of sixteen layers, more arithmetic than interpreter: what is packaged and called from outside."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

LAYERS = 16
WIDTH = 256
BATCH = 16


def build() -> torch.nn.Module:
    """``[n, 256] -> [n, 256]``, float32; weights from a fixed seed."""
    torch.manual_seed(0)
    layers = [torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU()) for _ in range(LAYERS)]
    return torch.nn.Sequential(*layers).eval()


def repeat(model: Callable[[torch.Tensor], torch.Tensor], seconds: float) -> int:
    """Call the model for that long, in the caller's inference mode; returns how often it was called."""
    x = torch.ones(BATCH, WIDTH)
    count = 0
    with torch.inference_mode():
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            model(x)
            count += 1
    return count
