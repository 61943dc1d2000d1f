"""TorchServe's messages, decoded and encoded natively where nothing about them is unusual.

``native/cpp/slot/otf_messages.cc`` makes exactly what ``ts.protocol.otf_message_handler`` makes. What
that raises, logs, or leaves to others (a tensor, a type of the model's own), it does itself, here as well.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from ts.protocol.otf_message_handler import create_predict_response, retrieve_msg
from ts.service import Service

import _interpool
from interpool.handler.backend import plain_logging
from interpool.handler.backend.wire import FrameReader

_EMPTY_BATCH = b"I\xff\xff\xff\xff"


def receive_batch(frame: memoryview | bytes) -> list[dict[str, Any]]:
    """The requests of a predict command; says in the log that they came, as TorchServe does.

    Raises:
        Exception: what TorchServe's decoder raises.
    """
    requests: list[dict[str, Any]] | None = _interpool.decode_requests(frame)
    if requests is None:  # from a copy: what it raises may be kept, with the frame in its traceback
        stock: list[dict[str, Any]] = retrieve_msg(FrameReader(bytes(frame)))[1]
        return stock
    plain_logging.batch_received(lambda: retrieve_msg(FrameReader(_EMPTY_BATCH)))
    return requests


def encode_answers(
    ret: Any,
    req_id_map: dict[int, str],
    message: str,
    code: int,
    context: Any = None,
    ts_stream_next: bool = False,
) -> bytearray | None:
    """Stands in for ``create_predict_response``."""
    if context is not None and not ts_stream_next:
        plain_json = _json() == _STOCK_JSON
        reply: bytearray | None = _interpool.encode_answers(
            ret, req_id_map, message, code, context, plain_json
        )
        if reply is not None:
            return reply
    stock: bytearray | None = create_predict_response(ret, req_id_map, message, code, context, ts_stream_next)
    return stock


def _json() -> tuple[Any, ...]:
    """What makes JSON of an answer, and models have been seen to replace."""
    return json.dumps, json.JSONEncoder, json.JSONEncoder.encode, json.JSONEncoder.iterencode


_STOCK_JSON = _json()


def install() -> None:
    """Have TorchServe's Service encode by ``encode_answers``, in this interpreter."""
    vars(sys.modules[Service.__module__])[create_predict_response.__name__] = encode_answers
