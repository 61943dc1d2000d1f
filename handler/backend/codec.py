"""Decodes and encodes TorchServe's messages natively if nothing about them is unusual.

``native/cpp/slot/otf_messages.cc`` makes exactly what ``ts.protocol.otf_message_handler`` makes. Of a batch
it also makes what ``Service.predict`` takes from that. TorchServe's own code runs instead if it would raise
or log, or if a value is for other code, such as a tensor. It also runs if a model has replaced any part of
it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from ts.context import Context, RequestProcessor
from ts.protocol.otf_message_handler import create_predict_response, retrieve_msg
from ts.service import Service

import _interpool
from interpool.handler.backend import plain_logging
from interpool.handler.backend.wire import FrameReader

_EMPTY_BATCH = b"I\xff\xff\xff\xff"

Taken = tuple[list[Any], list[dict[str, Any]], dict[int, str]]
"""A batch as ``Service.predict`` takes it apart: each request's headers, what handlers get, ids."""
Batch = list[dict[str, Any]] | Taken


def receive_batch(frame: memoryview | bytes) -> list[dict[str, Any]]:
    """Decode the requests of a predict command, and log that they came, as TorchServe does.

    Raises:
        Exception: what TorchServe's decoder raises.
    """
    requests: list[dict[str, Any]] | None = _interpool.decode_requests(frame, _reads_json())
    if requests is None:  # from a copy: what it raises may be kept, with the frame in its traceback
        stock: list[dict[str, Any]] = retrieve_msg(FrameReader(bytes(frame)))[1]
        return stock
    ids = [request["requestId"].decode(errors="replace") for request in requests]
    plain_logging.batch_received(_log_received, ids)
    return requests


def take_batch(frame: memoryview | bytes) -> Batch:
    """Decode like ``receive_batch``, for ``Service.predict``.

    The batch is taken apart already if ``Service.predict`` would do nothing else with it.

    Raises:
        Exception: what TorchServe's decoder raises.
    """
    if _takes_batches():
        taken: Taken | None = _interpool.take_requests(frame, _reads_json(), RequestProcessor)
        if taken is not None:
            plain_logging.batch_received(_log_received, taken[2].values())
            return taken
    return receive_batch(frame)


def request_ids(batch: Batch) -> dict[int, str]:
    """The requests' ids, by each request's place in the batch."""
    if isinstance(batch, tuple):
        return batch[2]
    return {index: request["requestId"].decode() for index, request in enumerate(batch)}


def encode_answers(
    ret: Any,
    req_id_map: dict[int, str],
    message: str,
    code: int,
    context: Any = None,
    ts_stream_next: bool = False,
) -> bytearray | None:
    """Encode a batch's answers. This replaces TorchServe's ``create_predict_response``.

    Args:
        ret: the answers of the batch, as a handler returned them; None if it failed.
        req_id_map: the requests' ids, by their places in the batch.
        message: of the answer.
        code: status of the answer, such as 200.
        context: TorchServe's context, which has each request's status and headers; None if there is none.
        ts_stream_next: whether further parts of a streamed answer follow.

    Returns:
        The encoded reply, or what TorchServe's function returned.
    """
    if context is not None and not ts_stream_next:
        reply: bytearray | None = _interpool.encode_answers(
            ret, req_id_map, message, code, context, _writes_json(), _answers_plainly()
        )
        if reply is not None:
            return reply
    stock: bytearray | None = create_predict_response(ret, req_id_map, message, code, context, ts_stream_next)
    return stock


def _retrieve(batch: Batch) -> Taken:
    """Replaces ``Service.retrieve_data_for_inference``."""
    return batch if isinstance(batch, tuple) else _stock_retrieve(batch)


def _log_received() -> None:
    retrieve_msg(FrameReader(_EMPTY_BATCH))


def install() -> None:
    """Make TorchServe's Service decode batches and encode answers by this module, in this interpreter."""
    global _takes_batches
    vars(sys.modules[Service.__module__])[create_predict_response.__name__] = encode_answers
    Service.retrieve_data_for_inference = staticmethod(_retrieve)
    _takes_batches = _interpool.watched(
        (Service, "predict"), (Service, "retrieve_data_for_inference"), (RequestProcessor, "__init__")
    )


_protocol = sys.modules[retrieve_msg.__module__]
_stock_retrieve: Any = Service.retrieve_data_for_inference
# Some models replace the functions that read and write JSON; tools for tracing replace those that answer.
_takes_batches: Callable[[], bool] = bool
_reads_json = _interpool.watched(
    (_protocol, "json"),
    (json, "loads"),
    (json, "JSONDecoder"),
    (json, "_default_decoder"),
    (json.JSONDecoder, "decode"),
    (json.JSONDecoder, "raw_decode"),
    (vars(json)["_default_decoder"], "scan_once"),
)
_writes_json = _interpool.watched(
    (_protocol, "json"),
    (json, "dumps"),
    (json, "JSONEncoder"),
    (json.JSONEncoder, "encode"),
    (json.JSONEncoder, "iterencode"),
    (json.JSONEncoder, "default"),
)
_answers_plainly = _interpool.watched(
    (Context, "get_response_headers"),
    (Context, "get_response_content_type"),
    (Context, "get_response_status"),
    (RequestProcessor, "get_response_headers"),
    (RequestProcessor, "get_response_status_code"),
    (RequestProcessor, "get_response_status_phrase"),
    (Context, "__getattribute__"),
    (RequestProcessor, "__getattribute__"),
)
