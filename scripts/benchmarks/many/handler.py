"""The many-models benchmark's handler: says which model it is, with a small network's answer."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.shared.tiny import WIDTH, TinyMLP


class Named:
    def initialize(self, context: Any) -> None:
        self.name = context.model_name
        self.model = TinyMLP()

    def handle(self, data: list[dict[str, Any]], context: Any) -> list[dict[str, Any]]:
        with torch.inference_mode():
            rows = [row.get("body") or row.get("data") for row in data]
            answers = self.model(torch.tensor([[float(row["x"])] * WIDTH for row in rows]))
        return [
            {"model": self.name, "id": row["id"], "y": y.tolist()}
            for row, y in zip(rows, answers, strict=True)
        ]
