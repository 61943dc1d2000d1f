"""A model that looks up rows on its worker's GPU and checks no number: one beyond the table loses the GPU."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

ASSERT = 710  # CUDA's number


class Table:
    """Answers ``number`` with a row; without a GPU it raises what torch does when that loses one."""

    def initialize(self, context: Any) -> None:
        gpu = context.system_properties["gpu_id"]
        self.device = "cpu" if gpu is None else f"cuda:{gpu}"
        self.rows = torch.arange(8.0, device=self.device).reshape(4, 2)

    def handle(self, data: list[dict[str, Any]], _context: Any) -> list[list[float]]:
        return [self._row(int(each["body"])) for each in data]

    def _row(self, number: int) -> list[float]:
        if self.device == "cpu" and number >= len(self.rows):
            error = torch.AcceleratorError("CUDA error: device-side assert triggered")
            error.error_code = ASSERT  # type: ignore[attr-defined]
            raise error
        row: list[float] = functional.embedding(torch.tensor(number, device=self.device), self.rows).tolist()
        return row


table = Table()
