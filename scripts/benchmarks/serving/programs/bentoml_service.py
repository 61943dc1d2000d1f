"""A model of the serving benchmark in BentoML: ``bentoml serve MODULE:Service``."""

from __future__ import annotations

import os
from typing import Any

import bentoml

from benchmarks.serving.models import build


@bentoml.service(  # type: ignore[untyped-decorator]
    workers=int(os.environ["SERVING_WORKERS"]), traffic={"timeout": 120}
)
class Service:
    def __init__(self) -> None:
        self.model = build(os.environ["SERVING_MODEL"])

    @bentoml.api  # type: ignore[untyped-decorator]
    def predict(self, x: list[float], data: str = "", who: bool = False) -> dict[str, Any]:
        return self.model.answer({"x": x, "data": data, "who": who})
