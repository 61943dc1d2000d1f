"""One interpreter's part of a batch, for ``interpool.handler.stock_worker.fanout``.

What crosses between interpreters is plain: numbers, strings, bytes, lists, dicts.
"""

from __future__ import annotations

import json
import os
from functools import lru_cache
from typing import Any

from ts.context import Context, RequestProcessor
from ts.utils.util import PredictionException, get_yaml_config

from interpool.handler.admission import Admission
from interpool.handler.backend.metrics import ModelMetrics
from interpool.handler.backend.model import PackedModel


@lru_cache(maxsize=1)
def _loaded(model: str) -> tuple[PackedModel, Context]:
    fields = json.loads(model)
    with open(os.path.join(fields["dir"], "MAR-INF", "MANIFEST.json"), encoding="utf-8") as file:
        manifest = json.load(file)
    config = manifest["model"].get("configFile")
    context = Context(
        fields["name"],
        fields["dir"],
        manifest,
        fields["batch_size"],
        fields["gpu"],
        fields["version"],
        fields["limit_max_image_pixels"],
        ModelMetrics.of_model(fields["name"], fields["metrics_config"]),
        get_yaml_config(os.path.join(fields["dir"], config)) if config else {},
    )
    return PackedModel(context, Admission.of_dict(fields["admission"])), context


def load(model: str) -> None:
    """Load the model into this interpreter; raises what its package raises."""
    _loaded(model)


def answer(
    model: str, rows: list[dict[str, Any]], headers: list[dict[str, Any]], ids: list[str]
) -> dict[str, Any]:
    """Answer some requests of a batch.

    Returns:
        ``{"answers": [(status, phrase or None, headers, body), ...]}``, or ``{"error": ..., "code": ...}``
        for all of them.
    """
    packed, context = _loaded(model)
    context.request_ids = dict(enumerate(ids))
    context.request_processor = [RequestProcessor(fields) for fields in headers]
    context.metrics.request_ids = context.request_ids
    try:
        bodies: Any = packed.handle(rows, context)  # a packed handler can return anything
    except PredictionException as error:
        return {"error": error.message, "code": error.error_code}
    if not isinstance(bodies, list) or len(bodies) != len(rows):
        return {"error": "number of batch response mismatched", "code": 503}
    answers = []
    for index, body in enumerate(bodies):
        code, phrase = context.get_response_status(index)
        answers.append((code, phrase, context.get_response_headers(index), _plain(body)))
    return {"answers": answers}


def _plain(body: Any) -> str | bytes:
    """A body as TorchServe's encoder would send it, except that tensors become JSON too."""
    if isinstance(body, (str, bytes)):
        return body
    return bytes(body) if isinstance(body, bytearray) else json.dumps(body, indent=2)
