"""The neighbour benchmark's two models, for the stock worker and for packing alike."""

from __future__ import annotations

import time
from typing import Any

import torch


class Busy:
    """Computes on one core for as much CPU time as the request asks for."""

    def initialize(self, context: Any) -> None:
        torch.set_num_threads(1)
        self.matrix = torch.eye(64)

    def handle(self, data: list[dict[str, Any]], context: Any) -> list[float]:
        return [self.compute(float((row.get("body") or row.get("data"))["seconds"])) for row in data]

    def compute(self, seconds: float) -> float:
        begun = time.thread_time()
        product = self.matrix
        while time.thread_time() - begun < seconds:
            for _ in range(20):
                product = product @ self.matrix
        return float(product.trace())
