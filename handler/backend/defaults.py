"""Serves a packed torch.nn.Module or plain callable; it needs no handler code.

``interpool.handler.backend.inputs`` says what a request's body means.
``interpool.handler.backend.outputs`` says how an answer is sent. If the server or the model has one of
TorchServe's request envelopes, ``interpool.handler.backend.envelopes`` says both.

Requests become calls in one of three ways (``batches``), which the archive's manifest says. The first two
need the manifest's proof of which parts of an answer belong to one request (``parts``):

- ``stack``: a request is one sample, without a batch dimension. The requests of a TorchServe batch are
  stacked if their tensors have the same shapes and types; if not, they run one at a time. A single request
  is stacked too, so that the answer to a request does not depend on what came with it. Requests without any
  tensor are given to the model as they are.
- ``batch``: a request brings a whole batch, of any size. The requests of a TorchServe batch are concatenated
  if their tensors have the same types, and the same shapes except for the first dimension. If not, the model
  is called for each of them.
- ``each``, the default without a proof: one call per request, with that request's arguments as they are.

A proof is a part of the archive. It holds for requests like the one with which it was made. Each request of
other shapes, types or options gets a call of its own. If an answer to several requests is not as was proven,
it is dropped, and the model is called for each request of that batch.

A module runs in evaluation and inference mode, unless its manifest says ``train_mode`` or ``grad``.

A request that cannot be understood gets status 400. If a request makes the model raise, it gets 503, or 400
if it is not like the model's example inputs. The other requests of its batch are answered.

A request for an explanation calls the entry's method ``explain`` instead of the entry. It runs without
inference mode, because explanations may need gradients. It gets 501 if the entry has no such method. A
request for a description gets one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple

import torch

from interpool.handler.backend.batches import Batch, batch_of, is_like
from interpool.handler.backend.binary_tensors import LENGTH_HEADER, BinaryAnswer
from interpool.handler.backend.client_faults import faults
from interpool.handler.backend.envelope_requests import Request, Subject
from interpool.handler.backend.envelopes import ENVELOPES
from interpool.handler.backend.error_text import describe, one_line, traceback_text
from interpool.handler.backend.inputs import Arguments
from interpool.handler.backend.lost_devices import note
from interpool.handler.backend.outputs import content_type, encoded
from interpool.handler.backend.parts import CannotSplit, split
from interpool.handler.errors import AnswerTooLarge, InputError, predict_failure_code
from interpool.native.archive.format import SERVED_PLAINLY, Serving
from interpool.native.upstream.torch_private import wants_gradients

logger = logging.getLogger(__name__)

IN_INFERENCE_MODE = (
    "it ran in inference mode, as modules are served; a model that differentiates in its forward is packed "
    "with --grad"
)


class _Failure(NamedTuple):
    """Why one call has no answer."""

    code: int
    text: str


class DefaultHandler:
    """Serves a module or another callable as TorchServe's handlers are served.

    Args:
        entry: the packed module or callable.
        model_name: for messages.
        tracebacks: whether answers contain the traceback of what the model raised.
        envelope: the name of the form of requests and answers (``envelopes``); "" for none.
        manifest: the model's section in the .mar's manifest, for answers that name the model; None for none.
        serving: what the archive's manifest says of requests.
        inputs: the manifest's description of the example inputs; None if there is none.
        proven: a call for which ``serving``'s proof holds; None: no requests share a call.
        described: returns the answer to requests for a description.
        most_bytes: the most bytes of an answer, TorchServe's max_response_size; 0: there is no bound.
    """

    def __init__(
        self,
        entry: Callable[..., Any],
        model_name: str,
        *,
        tracebacks: bool,
        envelope: str = "",
        manifest: Mapping[str, Any] | None = None,
        serving: Serving = SERVED_PLAINLY,
        inputs: Any = None,
        proven: Arguments | None = None,
        described: Callable[[], Any] = dict,
        most_bytes: int = 0,
    ) -> None:
        self._entry = entry
        self._model_name = model_name
        self._tracebacks = tracebacks
        self._is_module = isinstance(entry, torch.nn.Module)
        self._parts = serving["parts"]
        self._batches = "each" if self._parts is None else serving["batches"] or "each"
        self._grad = serving["grad"]
        self._inputs = inputs
        # Only the types and shapes of its tensors are used.
        self._proven = proven and proven.with_tensors(lambda t: torch.empty_like(t, device="meta"))
        self._described = described
        self._most_bytes = most_bytes
        self._parse = ENVELOPES[envelope]
        self._manifest = manifest or {}
        if isinstance(entry, torch.nn.Module) and not serving["train_mode"]:
            entry.eval()

    def handle(self, data: Sequence[dict[str, Any]], context: Any) -> list[Any]:
        """Answer a batch; statuses other than 200 are set in ``context``.

        Args:
            data: the requests' fields, one dict for each request.
            context: TorchServe's context for the batch.

        Returns:
            One answer for each request.
        """
        answers: list[Any] = [None] * len(data)
        wishes = [_wish(context, index) for index in range(len(data))]
        for wish in ("predict", "explain", "describe"):
            asked = [index for index, found in enumerate(wishes) if found == wish]
            if wish == "describe":
                for index in asked:
                    answers[index] = self._description(index, context)
            elif asked:
                self._answer(asked, data, context, answers, explains=wish == "explain")
        return answers

    def _description(self, index: int, context: Any) -> Any:
        try:
            return self._described()
        except Exception as error:  # noqa: BLE001 -- whatever the model raises
            text = f"Model {self._model_name!r} raised {describe(error)}"
            return _fail(context, index, self._failure(error, text))

    def _answer(
        self,
        asked: list[int],
        data: Sequence[dict[str, Any]],
        context: Any,
        answers: list[Any],
        *,
        explains: bool,
    ) -> None:
        """Answer the requests of a batch for predictions, or those for explanations."""
        function = getattr(self._entry, "explain", None) if explains else self._entry
        if not callable(function):
            text = f"Model {self._model_name!r} has no explanations"
            for index in asked:
                answers[index] = _fail(context, index, _Failure(501, text))
            return
        requests: dict[int, Request] = {}
        for index in asked:
            try:
                requests[index] = self._request(index, data[index], context, explains=explains)
            except InputError as error:
                answers[index] = _fail(context, index, _Failure(400, str(error)))
            except Exception as error:  # noqa: BLE001 -- a request must not make others of its batch fail
                code = predict_failure_code(error)
                text = f"the request cannot be understood: {describe(error)}"
                answers[index] = _fail(context, index, _Failure(400 if code == 503 else code, text))
        found = self._run(function, list(requests.values()))
        for index, request in requests.items():
            parts = [next(found) for _ in request.calls]
            failure = next((part for part in parts if isinstance(part, _Failure)), None)
            answer = failure or self._whole(request, parts)
            if isinstance(answer, _Failure):
                answers[index] = _fail(context, index, answer)
            else:
                answers[index], kind, json_bytes = answer
                if json_bytes is not None:
                    context.set_response_header(index, LENGTH_HEADER, str(json_bytes))
                if context.get_response_content_type(index) is None:
                    context.set_response_content_type(index, kind)

    def _whole(self, request: Request, parts: list[Any]) -> tuple[Any, str, int | None] | _Failure:
        """A request's answer as it is sent, its content type, and how many bytes are JSON if not all."""
        try:
            answer, json_bytes = request.answer(parts), None
            if isinstance(answer, BinaryAnswer):
                answer, json_bytes = answer
            body = encoded(answer)
            if self._most_bytes and len(body) > self._most_bytes:
                raise AnswerTooLarge(
                    f"Model {self._model_name!r}: the answer has {len(body):,} bytes, and TorchServe takes "
                    f"{self._most_bytes:,}: have the model return less, or raise max_response_size in "
                    "config.properties"
                )
            return body, content_type(answer), json_bytes
        except Exception as error:  # noqa: BLE001 -- one answer's fault is its own
            return self._failure(
                error, f"Model {self._model_name!r}: its answer cannot be sent: {describe(error)}"
            )

    def _request(self, index: int, row: dict[str, Any], context: Any, *, explains: bool) -> Request:
        subject = Subject(
            self._is_module,
            explains,
            context.get_request_id(index) or "",
            self._manifest,
        )
        request = self._parse(row, context.get_all_request_header(index), subject)
        raw = {name for call in request.calls for name in call.bytes_fields()} if self._is_module else ()
        if raw:
            raise InputError(
                f"{', '.join(sorted(raw))}: the model takes tensors, not bytes; send JSON, or a file of "
                "safetensors or numpy, with its content type (application/json, application/x-safetensors, "
                "application/x-npy)"
            )
        return request

    def _run(self, function: Callable[..., Any], requests: list[Request]) -> Iterator[Any]:
        """What the requests' calls returned, made sendable, or why they failed, in order."""
        calls = [(request, call) for request in requests for call in request.calls]
        parts = self._run_batch(function, calls)
        return iter(parts) if parts else (self._run_one(function, *each) for each in calls)

    def _run_batch(
        self, function: Callable[..., Any], calls: list[tuple[Request, Arguments]]
    ) -> list[Any] | None:
        """The parts of all calls at once; None if they have to run one at a time."""
        # Explanations have no proof.
        if len(calls) < 2 or self._proven is None or function is not self._entry:
            return None
        if any(request.batched for request, _ in calls):
            return None
        try:
            # If the first is like the proven one, all are: batch_of combines only calls that are alike.
            if not is_like(calls[0][1], self._proven, self._batches):
                return None
            batch = batch_of([call for _, call in calls], self._batches)
            if batch is None:
                return None
            parts = split(self._call(function, batch.call), self._parts, batch.sizes)
            return [request.finish(part) for (request, _), part in zip(calls, parts, strict=True)]
        except Exception:  # noqa: BLE001 -- which request is at fault shows if each runs alone
            return None

    def _run_one(self, function: Callable[..., Any], request: Request, call: Arguments) -> Any:
        try:
            batch = None if request.batched else batch_of([call], self._batches)
            output = self._call(function, batch.call if batch is not None else call)
            return request.finish(output if batch is None else self._only_part(output, batch))
        except Exception as error:  # noqa: BLE001 -- whatever the model raises
            note(error)
            text = f"Model {self._model_name!r} raised {describe(error)}"
            if self._is_module and not self._grad and wants_gradients(error):
                text += f"; {IN_INFERENCE_MODE}"
            elif predict_failure_code(error) == 503 and (said := faults(function, call, self._inputs)):
                said_all = one_line("; ".join(said))
                return _Failure(
                    400, f"Model {self._model_name!r} does not take this request: {said_all}. {text}"
                )
            return self._failure(error, text)

    def _only_part(self, output: Any, batch: Batch) -> Any:
        try:
            (part,) = split(output, self._parts, batch.sizes)
        except CannotSplit:
            return output
        return part

    def _failure(self, error: Exception, text: str) -> _Failure:
        note(error)
        self._note(error, text)
        if self._tracebacks:
            text += f"\n{traceback_text(error)}"
        return _Failure(predict_failure_code(error), text)

    def _note(self, error: Exception, text: str) -> None:
        """The model raised; the client gets the text."""
        logger.warning("%s\n%s", text, traceback_text(error))

    def _call(self, function: Callable[..., Any], call: Arguments) -> Any:
        if not self._is_module or function is not self._entry:
            return function(*call.positional, **call.named)
        with torch.enable_grad() if self._grad else torch.inference_mode():
            return function(*call.positional, **call.named)


def _wish(context: Any, index: int) -> str:
    """What a request is for; requests of all kinds may share a batch."""
    for wish in ("describe", "explain"):
        if context.get_request_header(index, wish) == "True":
            return wish
    return "predict"


def _fail(context: Any, index: int, failure: _Failure) -> dict[str, Any]:
    """Set one request's status; its answer looks like the frontend's own errors."""
    code = failure.code
    context.set_response_status(code, HTTPStatus(code).phrase, index)
    kind = "BadRequestException" if code == 400 else "InternalServerException"
    return {"code": code, "type": kind, "message": failure.text}
