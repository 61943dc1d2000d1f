"""The handler around the convolutional net."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from project.labels import LABELS

if TYPE_CHECKING:
    from project.preprocessing import Preprocessor


class Network(nn.Sequential):
    """Three convolutions and a linear layer."""

    def __init__(self) -> None:
        super().__init__(
            *self._block(3, 16), *self._block(16, 32), *self._block(32, 64),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, len(LABELS)),
        )  # fmt: skip

    @staticmethod
    def _block(inputs: int, outputs: int) -> tuple[nn.Module, ...]:
        return (
            nn.Conv2d(inputs, outputs, 3, stride=2, padding=1),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
        )


class Classifier:
    """Answers each image with a label and the score of every label."""

    def __init__(self, network: Network, preprocessor: Preprocessor) -> None:
        self.network = network
        self.preprocessor = preprocessor

    def handle(self, data: list[dict[str, Any]], context: Any) -> list[dict[str, Any]]:
        """Answer a batch of requests, as TorchServe hands them over."""
        rows = [row.get("data") or row.get("body") for row in data]
        with torch.inference_mode():
            return self.postprocess(self.inference(self.preprocessor.batch(rows)))

    def inference(self, batch: torch.Tensor) -> torch.Tensor:
        """Scores, one row for each image."""
        return torch.softmax(self.network(batch) * 8, dim=-1)

    def postprocess(self, scores: torch.Tensor) -> list[dict[str, Any]]:
        """One answer for each image."""
        return [
            {"label": LABELS[row.argmax()], "scores": dict(zip(LABELS, row.tolist(), strict=True))}
            for row in scores
        ]
