"""A model whose answers are known, and that keeps what it was asked."""

from typing import Any

import torch


class Doubles(torch.nn.Module):
    """Doubles its input; keeps the shapes it saw."""

    def __init__(self, output: Any = lambda y: y) -> None:
        super().__init__()
        self.seen: list[tuple[int, ...]] = []
        self.output = output

    def forward(self, x: Any, bias: Any = 0) -> Any:
        if isinstance(x, torch.Tensor):
            self.seen.append(tuple(x.shape))
            if x.sum() > 1000:
                raise ValueError("too much")
        return self.output(x * 2 + bias)
