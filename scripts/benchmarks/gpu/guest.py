"""The gpu benchmark's model, a transformer's encoder, and its calls: in every Python the same."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.shared.at_once import rate_of

WARM = 3
NAME = "large"
SHAPE = (1, 128, 1024)
Model = Callable[[torch.Tensor], Any]


def large() -> torch.nn.Module:
    """``[1, 128, 1024]``: as many layers as $GPU_LAYERS says, 50 MB of weights each."""
    torch.manual_seed(0)
    layers = int(os.environ["GPU_LAYERS"])
    layer = torch.nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True)
    return torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).eval()


def inputs(device: str) -> torch.Tensor:
    """What it is asked."""
    count = int(torch.tensor(SHAPE).prod().item())
    return torch.linspace(-1.0, 1.0, count).reshape(SHAPE).to(device)


def answer(model: Model, device: str) -> float:
    """A number that shows whether it computes what it should; warms it, too."""
    x = inputs(device)
    with torch.inference_mode():
        for _ in range(WARM):
            y = model(x)
    return float(y.double().abs().mean())


def repeat(model: Model, device: str, seconds: float) -> float:
    """Calls a second, each waited for, on a stream of this thread's own; one at least."""
    x = inputs(device)
    stream = torch.cuda.Stream(device) if device.startswith("cuda") else None

    def once() -> None:
        model(x)
        if stream is not None:
            stream.synchronize()

    with torch.inference_mode(), torch.cuda.stream(stream) if stream else contextlib.nullcontext():
        return rate_of(once, seconds)
