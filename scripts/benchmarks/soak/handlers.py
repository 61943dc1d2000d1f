"""The soak's models: what each answers can be checked, bad input is an error, and one leaks."""

from __future__ import annotations

from typing import Any

import torch

LEAK_BYTES = 100_000
_kept: list[bytes] = []


class Steady:
    """A number becomes a sum; ``fail`` is an error."""

    side = 64

    def initialize(self, context: Any) -> None:
        self.weight = torch.arange(float(self.side * self.side)).reshape(self.side, self.side) / self.side**2

    def handle(self, data: list[dict[str, Any]], context: Any) -> list[Any]:
        return [self.one(row.get("body") or row["data"]) for row in data]

    def one(self, request: dict[str, Any]) -> dict[str, Any]:
        if request.get("fail"):
            raise ValueError("as it was asked")
        x = int(request["x"])
        with torch.inference_mode():
            y = torch.relu(self.weight @ torch.full((self.side,), float(x)) - 3.0)
        return {"x": x, "y": round(float(y.sum()), 1)}


class Weighty(Steady):
    """The same with four megabytes of weights, so that some that are left behind show."""

    side = 1024


class Leaking(Steady):
    """The same, and keeps some of each request for ever."""

    def one(self, request: dict[str, Any]) -> dict[str, Any]:
        _kept.append(b"x" * LEAK_BYTES)
        return super().one(request)
