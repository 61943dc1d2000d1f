"""One interpreter's shard of a batch, for ``interpool.handler.stock_worker.fanout``.

Only plain values are transferred between interpreters: numbers, strings, bytes, lists, dicts.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from ts.context import Context, RequestProcessor
from ts.utils.util import PredictionException

from interpool.handler.backend.load_request import LoadRequest
from interpool.handler.backend.loading import load_model
from interpool.handler.backend.packed_model import PackedModel
from interpool.handler.signature_policy import SignaturePolicy


@lru_cache(maxsize=1)
def _loaded(model: str) -> tuple[PackedModel, Context]:
    fields = json.loads(model)
    return load_model(LoadRequest(**fields["request"]), SignaturePolicy(**fields["policy"]))


def load(model: str) -> None:
    """Load the model into this interpreter; raises what its package raises.

    Args:
        model: the fields of its LoadRequest and of its SignaturePolicy, JSON.
    """
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
