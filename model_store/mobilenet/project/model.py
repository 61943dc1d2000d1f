"""The handler around MobileNetV3."""

from __future__ import annotations

from typing import Any

import torch

from project.images import decode
from project.labels import LABELS
from project.network import MobileNetV3


class Classifier:
    """Answers each image with its most likely labels."""

    def __init__(self, network: MobileNetV3, top: int = 3) -> None:
        self.network = network
        self.top = top

    def preprocess(self, data: list[dict[str, Any]]) -> torch.Tensor:
        """A batch of requests, as TorchServe hands them over, as (requests, 3, 224, 224) floats."""
        return torch.stack([decode(row.get("data") or row["body"]) for row in data])

    @torch.inference_mode()
    def inference(self, batch: torch.Tensor) -> torch.Tensor:
        """Probabilities, (requests, labels)."""
        return torch.softmax(self.network(batch), dim=-1)

    def postprocess(self, scores: torch.Tensor) -> list[dict[str, float]]:
        """For each image the scores of its ``top`` labels, the best first."""
        best = scores.topk(self.top)
        return [
            {LABELS[label]: score for label, score in zip(labels, values, strict=True)}
            for labels, values in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]
