"""How a packed torch.nn.Module or plain callable is served: no handler code needed.

``interpool.handler.backend.inputs`` says what a request's body means, ``interpool.handler.backend.outputs``
what becomes of the answer.

- A **module** sees batches: a request is one sample, without a batch dimension. The requests
  of a TorchServe batch are stacked if their tensors have the same shapes and types, and run
  one at a time otherwise. A single request is stacked too, so that the answer to a request
  does not depend on what came with it. It runs in evaluation and inference mode. An output
  that has no part for each request, such as one whose first dimension is another, makes the
  model run on one request at a time from then on, and is then sent whole. Requests that hold
  no tensor at all are given to the module as they are.
- Any other **callable** is called once per request, with that request's arguments as they are.

A request that cannot be understood answers 400, one that makes the model raise answers 503, and
the others of its batch are answered.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any

import torch

from interpool.handler.backend.error_text import describe
from interpool.handler.backend.inputs import Arguments, arguments
from interpool.handler.backend.outputs import CannotSplit, content_type, sendable, split
from interpool.handler.errors import InputError, out_of_memory, predict_failure_code

logger = logging.getLogger(__name__)


class DefaultHandler:
    """Serves a module or another callable as TorchServe's handlers are served."""

    def __init__(self, entry: Callable[..., Any], model_name: str, *, tracebacks: bool) -> None:
        self._entry = entry
        self._model_name = model_name
        self._tracebacks = tracebacks
        self._is_module = isinstance(entry, torch.nn.Module)
        self._splits = self._is_module
        if isinstance(entry, torch.nn.Module):
            entry.eval()

    def handle(self, data: Sequence[dict[str, Any]], context: Any) -> list[Any]:
        """One answer per request; statuses other than 200 are set in ``context``."""
        answers: list[Any] = [None] * len(data)
        calls: dict[int, Arguments] = {}
        for index, row in enumerate(data):
            try:
                calls[index] = self._arguments(row, context.get_all_request_header(index))
            except InputError as error:
                answers[index] = _fail(context, index, predict_failure_code(error), str(error))
        if not self._run_batch(calls, answers):
            for index, call in calls.items():
                self._run_one(index, call, answers, context)
        for index in range(len(data)):
            if context.get_response_content_type(index) is None:
                context.set_response_content_type(index, content_type(answers[index]))
        return answers

    def _arguments(self, row: dict[str, Any], headers: dict[str, Any]) -> Arguments:
        call = arguments(row, headers)
        raw = call.bytes_fields() if self._is_module else []
        if raw:
            raise InputError(
                f"{', '.join(raw)}: the model takes tensors, not bytes; send JSON, or a file "
                "that torch.save wrote"
            )
        return call

    def _run_batch(self, calls: dict[int, Arguments], answers: list[Any]) -> bool:
        """Answer all calls at once; False if they have to run one at a time."""
        batch = _stack(list(calls.values())) if self._splits and calls else None
        if batch is None:
            return False
        try:
            parts = split(self._call(batch), len(calls))
            found = [sendable(part) for part in parts]
        except CannotSplit:
            self._splits = False
            return False
        except Exception as error:
            if out_of_memory(error):
                raise
            return False  # which request is at fault shows when each runs alone
        for index, part in zip(calls, found, strict=True):
            answers[index] = part
        return True

    def _run_one(self, index: int, call: Arguments, answers: list[Any], context: Any) -> None:
        try:
            batch = _stack([call]) if self._is_module else None
            output = self._call(batch or call)
            if batch is not None and self._splits:
                output = split(output, 1)[0]
            answers[index] = sendable(output)
        except Exception as error:
            if out_of_memory(error):
                raise
            text = f"Model {self._model_name!r} raised {describe(error)}"
            logger.warning("%s", text, exc_info=True)
            if self._tracebacks:
                text += "\n" + "".join(traceback.format_exception(error))
            answers[index] = _fail(context, index, predict_failure_code(error), text)

    def _call(self, call: Arguments) -> Any:
        if not self._is_module:
            return self._entry(*call.positional, **call.named)
        with torch.inference_mode():
            return self._entry(*call.positional, **call.named)


def _stack(calls: list[Arguments]) -> Arguments | None:
    """The calls as one, with tensors stacked; None if they differ or hold no tensor."""
    first = calls[0]
    keys = [(len(call.positional), tuple(call.named)) for call in calls]
    if keys.count(keys[0]) != len(keys):
        return None
    columns = [
        *zip(*(call.positional for call in calls), strict=True),
        *zip(*(call.named.values() for call in calls), strict=True),
    ]
    stacked = []
    for column in columns:
        if isinstance(column[0], torch.Tensor):
            kinds = {(t.shape, t.dtype) if isinstance(t, torch.Tensor) else None for t in column}
            if len(kinds) > 1:
                return None
            stacked.append(torch.stack(column))
        elif any(isinstance(value, torch.Tensor) or value != column[0] for value in column):
            return None
        else:
            stacked.append(column[0])
    if not any(isinstance(value, torch.Tensor) for value in stacked):
        return None
    count = len(first.positional)
    return Arguments(tuple(stacked[:count]), dict(zip(first.named, stacked[count:], strict=True)))


def _fail(context: Any, index: int, code: int, message: str) -> dict[str, Any]:
    """Set one request's status; its answer looks like the frontend's own errors."""
    context.set_response_status(code, HTTPStatus(code).phrase, index)
    kind = "BadRequestException" if code == 400 else "InternalServerException"
    return {"code": code, "type": kind, "message": message}
