"""The rest benchmark's models: one that does nothing, and one that computes for about 0.1 ms."""

from __future__ import annotations

import time
from typing import Any

import torch

WIDTH = 16


class Gated(torch.nn.Module):
    """``[n, 16] -> [n, 16]``, float32."""

    def __init__(self) -> None:
        super().__init__()
        self.value = torch.nn.Linear(WIDTH, WIDTH)
        self.gate = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.value(x)) * torch.sigmoid(self.gate(x))


class Empty:
    """Answers ``ok`` to every request."""

    def initialize(self, context: Any) -> None:
        pass

    def handle(self, data: list[dict[str, Any]], context: Any) -> list[Any]:
        return [b"ok"] * len(data)


class Tiny:
    """A tower of two gated layers: each request is a list of numbers, and so is its answer."""

    def initialize(self, context: Any) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(Gated(), Gated()).eval()

    def handle(self, data: list[dict[str, Any]], context: Any) -> list[Any]:
        answers = []
        for row in data:
            with torch.inference_mode():
                answers.append(self.model(torch.tensor(row["body"])).tolist())
        return answers


class _Timed:
    """Answers each request with the CPU time, in ms, that handling it has taken its thread."""

    def handle(self, data: list[dict[str, Any]], context: Any) -> list[Any]:
        begun = time.thread_time()
        super().handle(data, context)  # type: ignore[misc]
        return [[(time.thread_time() - begun) * 1000 / len(data)]] * len(data)


class TimedTiny(_Timed, Tiny):
    """What a Tiny takes where it is served."""


class TimedEmpty(_Timed, Empty):
    """What an Empty takes where it is served."""
