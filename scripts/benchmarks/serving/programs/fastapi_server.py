"""A model of the serving benchmark in FastAPI, with uvicorn's workers: ``uvicorn MODULE:app``."""

from __future__ import annotations

import os
from typing import Any

from fastapi import FastAPI

from benchmarks.serving.models import build

app = FastAPI()
model = build(os.environ["SERVING_MODEL"])


@app.post("/predict")  # type: ignore[untyped-decorator]
def predict(request: dict[str, Any]) -> dict[str, Any]:
    return model.answer(request)
