"""A model on a device that is called over and over: in ordinary Python, and inside interpreters."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.gpu.models import inputs

WARM = 3
Model = Callable[[torch.Tensor], Any]


def answer(model: Model, device: str) -> float:
    """What tells whether it computes what it should; warms it, too."""
    x = inputs(device)
    with torch.inference_mode():
        for _ in range(WARM):
            y = model(x)
    return float(y.double().abs().mean())


def repeat(model: Model, device: str, seconds: float) -> float:
    """Calls a second, each waited for, on a stream of this thread's own; one at least."""
    x = inputs(device)
    on_gpu = device.startswith("cuda")
    stream = torch.cuda.Stream(device) if on_gpu else None
    count = 0
    with torch.inference_mode(), torch.cuda.stream(stream) if on_gpu else contextlib.nullcontext():
        start = time.perf_counter()
        while True:
            model(x)
            if stream is not None:
                stream.synchronize()
            count += 1
            took = time.perf_counter() - start
            if took >= seconds:
                return count / took
