"""Answers requests by the code that serves, without a server, and returns what clients would read."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from interpool.archiver_ext.verify.handlers import handler_context, handler_of
from interpool.archiver_ext.verify.self_test import seed_all
from interpool.handler.backend.defaults import DefaultHandler
from interpool.handler.backend.error_text import describe
from interpool.handler.backend.example_requests import Form, row_of
from interpool.handler.backend.inputs import Arguments, is_numeric
from interpool.handler.backend.outputs import CannotSend, content_type, sendable
from interpool.handler.backend.request_plans import CalledModel
from interpool.native.archive.format import Batches, Parts, Serving


class WrongAnswer(Exception):
    """A request is not answered as the model answers; the message continues a sentence and says how."""


class _Served(DefaultHandler):
    """Raises what the server would answer with 503 and a line in its log."""

    def _note(self, error: Exception, text: str) -> None:
        if isinstance(error, CannotSend):
            raise error
        raise WrongAnswer(text) from error


@contextlib.contextmanager
def asking(
    asked: CalledModel, way: Batches | None, parts: Parts, proven: Arguments | None = None
) -> Iterator[Callable[[Sequence[Form]], list[Any]]]:
    """Yield a function that answers a batch of requests; its answers are as clients read them.

    The block has its own model. The function raises WrongAnswer, and CannotSend.

    Args:
        asked: the model; gets the length of the first answer of each batch.
        way: how requests become calls; None for a handler.
        parts: the proof that several requests can share a call.
        proven: the call of that proof; None: no requests share a call.
    """
    entry = asked.make()
    with tempfile.TemporaryDirectory(prefix="interpool-model-") as folder:
        handle: Callable[..., list[Any]]
        if asked.kind == "handler":
            handle = handler_of(entry, handler_context([{}], Path(folder)))
        else:
            serving: Serving = {**asked.serving, "batches": way, "parts": parts}
            handle = _Served(entry, "model", tracebacks=False, serving=serving, proven=proven).handle

        def ask(forms: Sequence[Form]) -> list[Any]:
            rows, headers = zip(*map(row_of, forms), strict=True)
            context = handler_context(rows, Path(folder), headers)
            seed_all(asked.test["seed"])
            try:
                answers = handle(list(rows), context)
            except (WrongAnswer, CannotSend):
                raise
            except Exception as error:
                raise WrongAnswer(f"it raised {describe(error)}") from error
            if not isinstance(answers, list) or len(answers) != len(rows):
                raise WrongAnswer(f"it gave no list of {len(rows)} answers to as many requests")
            asked.answer_bytes = _size(answers[0])
            return [_read(each, context, index) for index, each in enumerate(answers)]

        yield ask


def _size(given: Any) -> int:
    """The length in bytes of an answer as it is sent; 0 if it cannot be sent: ``_read`` raises then."""
    if isinstance(given, torch.Tensor):  # what torch.save writes has a little more
        return given.numel() * given.element_size()
    if isinstance(given, (bytes, bytearray)):
        return len(given)
    try:
        return len((given if isinstance(given, str) else json.dumps(given)).encode())
    except (TypeError, ValueError):
        return 0


def _read(given: Any, context: Any, index: int) -> Any:
    """An answer as a client reads it."""
    code, _ = context.get_response_status(index)
    kind = context.get_response_content_type(index) or ""
    if code not in (None, 200):
        said = given["message"] if isinstance(given, Mapping) and "message" in given else given
        raise WrongAnswer(f"it is answered {code}: {said}")
    if isinstance(given, torch.Tensor):  # of a handler's: TorchServe sends what torch.save writes
        return given.detach().cpu().tolist()
    if isinstance(given, bytes) and kind == content_type([]):
        return json.loads(given)
    if isinstance(given, bytes) and kind == content_type(""):
        return given.decode()
    try:
        return _sent_as(given)
    except (TypeError, ValueError):
        sendable(given)  # says which part it is
        raise WrongAnswer("its answers hold tensors or arrays, which a handler must make lists of") from None


def as_sent(expected: Any) -> Any:
    """What a client should read."""
    return _sent_as(sendable(expected))


def _sent_as(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    return value if isinstance(value, str) else json.loads(json.dumps(value))


def in_tensors(value: Any) -> Any:
    """Numbers in lists as tensors, which are compared at once."""
    if isinstance(value, dict):
        return {name: in_tensors(item) for name, item in value.items()}
    if not isinstance(value, list):
        return value
    if value and is_numeric(value):
        try:
            return torch.tensor(value, dtype=torch.float64)
        except (ValueError, TypeError, RuntimeError, OverflowError):
            pass
    return [in_tensors(item) for item in value]
