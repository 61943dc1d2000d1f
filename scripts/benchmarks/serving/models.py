"""What the serving benchmark serves, alike in every framework: its models, and what to ask them."""

from __future__ import annotations

import os
import time
from typing import Any, ClassVar

import torch

from benchmarks.rest.handlers import WIDTH, Gated

IMPORTED = "benchmarks.rest.handlers"  # what an ordinary archive needs beside this module
WAIT_S = 0.05
WHO_S = 0.02
# What is asked: every framework gets the same JSON, and answers with JSON.
REQUEST = {"x": [number / WIDTH for number in range(WIDTH)]}
WHO = {"x": [], "who": True}
LARGE_BYTES = 1_000_000
BATCH_DELAY_MS = 5  # that a batch waits for more requests, in every framework


class Served:
    """Answers requests; a handler of TorchServe's, for the stock worker and for packing alike.

    Attributes:
        batch: the most requests that are answered by one call, if the framework collects them.
        question: what it is asked.
    """

    batch = 1
    question: dict[str, Any] = REQUEST

    def handle(self, data: list[dict[str, Any]], context: Any) -> list[dict[str, Any]]:
        return self.answer_all([row.get("body") or row["data"] for row in data])

    def answer_all(self, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The answers of a batch; see ``answer``."""
        return [self.answer(request) for request in requests]

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """``{"y": ...}``; for ``who``, which process this is, after a while in which the others are asked."""
        if request.get("who"):
            time.sleep(WHO_S)
            return {"pid": os.getpid()}
        with torch.inference_mode():
            y = self.compute(torch.tensor(request["x"]))
        # Kernels differ in their last digits from machine to machine; answers are compared as text.
        return {"y": _rounded(y.tolist())}

    def initialize(self, context: Any) -> None:
        """Make the model."""
        raise NotImplementedError

    def compute(self, x: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError


class Small(Served):
    """A tower of two gated layers: some 0.1 ms, more Python than arithmetic."""

    def initialize(self, context: Any) -> None:
        _prepare()
        self.model = torch.nn.Sequential(Gated(), Gated()).eval()

    def compute(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(x)  # type: ignore[no-any-return]


class Residual(torch.nn.Module):
    """Two convolutions, and past them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(channels, channels, 3, padding=1)
        self.second = torch.nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.second(torch.relu(self.first(x))))


class Medium(Served):
    """A residual network over a picture of 64 x 64: some 20 ms on one core, nearly all of it arithmetic."""

    CHANNELS = 64
    SIDE = 64

    def initialize(self, context: Any) -> None:
        _prepare()
        self.model = torch.nn.Sequential(
            torch.nn.Conv2d(1, self.CHANNELS, 3, padding=1),
            *(Residual(self.CHANNELS) for _ in range(4)),
            torch.nn.AdaptiveAvgPool2d(1),
            torch.nn.Flatten(),
            torch.nn.Linear(self.CHANNELS, 10),
        ).eval()

    def compute(self, x: torch.Tensor) -> torch.Tensor:
        row = x.repeat(self.SIDE // WIDTH)
        picture = torch.outer(row, row)[None, None]
        return self.model(picture)[0]  # type: ignore[no-any-return]


class Waiting(Served):
    """Waits 50 ms, as for a database, and computes nothing."""

    def initialize(self, context: Any) -> None:
        _prepare()

    def compute(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(WAIT_S)
        return x * 2


class Large(Small):
    """The small model, asked with a megabyte beside its input, as with a picture in Base64."""

    question: ClassVar[dict[str, Any]] = {**REQUEST, "data": "x" * LARGE_BYTES}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        return {**super().answer(request), "bytes": len(request.get("data", ""))}


class Batched(Served):
    """Layers whose weights are read once for a batch, of one request or of eight."""

    batch = 8
    HIDDEN = 2048

    def initialize(self, context: Any) -> None:
        _prepare()
        self.model = torch.nn.Sequential(
            torch.nn.Linear(WIDTH, self.HIDDEN),
            torch.nn.ReLU(),
            torch.nn.Linear(self.HIDDEN, self.HIDDEN),
            torch.nn.ReLU(),
            torch.nn.Linear(self.HIDDEN, WIDTH),
        ).eval()

    def compute(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(x)  # type: ignore[no-any-return]

    def answer_all(self, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if len(requests) == 1 or any(request.get("who") for request in requests):
            return super().answer_all(requests)
        rows = self.answer({"x": [request["x"] for request in requests]})["y"]
        return [{"y": row} for row in rows]


class Bert(Served):
    """A small BERT of transformers', which takes longer to import than torch."""

    def initialize(self, context: Any) -> None:
        from transformers import BertConfig, BertModel

        _prepare()
        config = BertConfig(vocab_size=1000, hidden_size=64, num_hidden_layers=2, num_attention_heads=2)
        self.model = BertModel(config).eval()

    def compute(self, x: torch.Tensor) -> torch.Tensor:
        tokens = (x * WIDTH).long()[None]
        return self.model(tokens).pooler_output[0, :8]  # type: ignore[no-any-return]


MODELS: dict[str, type[Served]] = {
    "small": Small,
    "medium": Medium,
    "waiting": Waiting,
    "large": Large,
    "batched": Batched,
    "bert": Bert,
}
BY_DEFAULT = [name for name in MODELS if name != "bert"]  # that is for many models at once


def build(name: str) -> Served:
    """The model of that name."""
    model = MODELS[name]()
    model.initialize(None)
    return model


def _rounded(values: list[Any]) -> list[Any]:
    return [_rounded(value) if isinstance(value, list) else round(value, 3) for value in values]


def _prepare() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
