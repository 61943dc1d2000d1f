"""The handler around Hugging Face's BERT."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from project.labels import LABELS

if TYPE_CHECKING:
    from transformers import BertForSequenceClassification

    from project.preprocessing import Preprocessor


class Classifier:
    """Answers each text with a label and the score of every label."""

    def __init__(self, network: BertForSequenceClassification, preprocessor: Preprocessor) -> None:
        self.network = network
        self.preprocessor = preprocessor

    def handle(self, data: list[dict[str, Any]], context: Any) -> list[dict[str, Any]]:
        """Answer a batch of requests, as TorchServe hands them over."""
        rows = [row.get("data") or row.get("body") for row in data]
        with torch.inference_mode():
            return self.postprocess(self.inference(self.preprocessor.batch(rows)))

    def inference(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """Scores, one row for each text."""
        return torch.softmax(self.network(**batch).logits, dim=-1)

    def postprocess(self, scores: torch.Tensor) -> list[dict[str, Any]]:
        """One answer for each text."""
        return [
            {"label": LABELS[row.argmax()], "scores": dict(zip(LABELS, row.tolist(), strict=True))}
            for row in scores
        ]
