"""The serving benchmark's models as TorchServe's handlers, for the stock worker and for packing alike."""

from __future__ import annotations

from typing import Any

from benchmarks.serving import models


class Handler:
    """Answers each batch as its model does."""

    name = ""

    def initialize(self, context: Any) -> None:
        self.model = models.build(self.name)

    def handle(self, data: list[dict[str, Any]], context: Any) -> list[Any]:
        return self.model.answer_all([row.get("body") or row["data"] for row in data])


class Small(Handler):
    name = "small"


class Medium(Handler):
    name = "medium"


class Waiting(Handler):
    name = "waiting"


class Large(Handler):
    name = "large"


class Batched(Handler):
    name = "batched"


class Bert(Handler):
    name = "bert"
