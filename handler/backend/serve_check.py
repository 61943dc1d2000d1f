"""Whether a model answers requests as it does when it is called: by the code that serves, without a server.

``interpool pack`` and ``verify`` call this, through ``archiver_ext/verify/serving_side.py``.

A request of the example inputs is looked for in this order: samples that are stacked, whole batches, one call
for each request; in each of these as JSON (text or bytes, if the input is that), then as what torch.save
writes. The first two need a proof that requests which share a call do not depend on each other
(``row_proof``). The first that is answered alone and in a batch of two, with what the model answers when
it is called, is the one.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch

from interpool.archiver_ext.verify.handler_context import handler_context
from interpool.archiver_ext.verify.self_test import Sample, answer, differences, seed_all
from interpool.archiver_ext.verify.serving_side import FoundRequest, ServeCheck
from interpool.handler.backend import row_proof
from interpool.handler.backend.batches import is_like
from interpool.handler.backend.defaults import DefaultHandler
from interpool.handler.backend.error_text import describe
from interpool.handler.backend.example_requests import (
    BYTES,
    JSON,
    Form,
    call_of,
    forms_of,
    row_forms,
    row_of,
)
from interpool.handler.backend.handlers import handler_of
from interpool.handler.backend.inputs import Arguments, is_numeric
from interpool.handler.backend.outputs import CannotSend, content_type, sendable
from interpool.handler.backend.row_proof import NotProven
from interpool.handler.torchserve import MOST_REQUEST_BYTES, MOST_RESPONSE_BYTES
from interpool.native.archive.format import Batches, EntryKind, Parts, RequestRecord, SelfTest, Serving

_WAYS: tuple[Batches, ...] = ("stack", "batch", "each")
_AS = {
    "stack": "as samples that are stacked",
    "batch": "as whole batches",
    "each": "as one call for each request",
    None: "as a handler's batch",
}
_UNREPEATABLE = (
    "its answers are random, or depend on earlier calls: requests are answered, and whether rightly could be "
    "checked for the first at most"
)
_ONE_BY_ONE = (
    "requests are answered by a call each, as it is not proven that several can share one without a trace of "
    "each other in the answers"
)
_REMEDIES = (
    "choose how requests become calls with --batches; or pack a function around the model, which takes what "
    "requests can bring (JSON, text, bytes, or tensors as torch.save writes them) and returns tensors, "
    "numbers, texts, lists or dicts of them. --no-serve-check packs it as it is"
)
# Of the tolerance: a batch of another size adds numbers in another order.
_SLACK = 10.0


class _Wrong(Exception):
    """A request is not answered as the model answers; the message says how, in a sentence's rest."""


# ---- looking for a request ----------------------------------------------------------------------


def find_request(
    make: Callable[[], Any], kind: EntryKind, held: Any, test: SelfTest, serving: Serving
) -> ServeCheck:
    """See ServingSide."""
    asked = _Asked(make, kind, held, test, serving)
    unproven: list[str] = []
    try:
        plans = _handler_plans(asked) if kind == "handler" else _plans(asked, unproven)
        return _first_that_works(asked, plans, unproven)
    except CannotSend as error:
        return ServeCheck(refusal=_cannot_send(error))


@dataclass(frozen=True)
class _Plan:
    """A way of making requests of the example inputs.

    Attributes:
        way: how requests become calls; None for a handler.
        parts: the proof that several can share a call.
        requests: one or more, each what one request is to mean: a call, or a handler's row.
        expected: what each is to be answered.
        part: of the self-test's answer, that the first is.
        whole: whether the first is all of the example inputs.
    """

    way: Batches | None
    parts: Parts
    requests: Sequence[Any]
    expected: Sequence[Any]
    part: int | None
    whole: bool


class _Asked:
    """The model, and what it was asked when it was called.

    Args:
        make, kind, held, test, serving: see ServingSide.

    Attributes:
        answer_bytes: how long the first answer was, of those that were given last.
    """

    def __init__(
        self, make: Callable[[], Any], kind: EntryKind, held: Any, test: SelfTest, serving: Serving
    ) -> None:
        self.make, self.kind, self.test, self.serving = make, kind, test, serving
        self.sample = Sample(tuple(held["args"]), dict(held["kwargs"]))
        self.expected = held["expected"]
        self.answer_bytes = 0

    def direct(self, *asked: tuple[Sample, int]) -> list[Any]:
        """What a model that nobody serves answers to inputs, one after the other, each with its seed."""
        entry = self.make()
        return [answer(entry, self.kind, sample, seed, serving=self.serving) for sample, seed in asked]

    @cached_property
    def repeatable(self) -> bool:
        """Whether it answers the same again, and with other random numbers."""
        seed = self.test["seed"]
        first, *again = self.direct(*((self.sample, seed + more) for more in (0, 0, 1)))
        return not any(self.differences(first, got) for got in again)

    @cached_property
    def other(self) -> tuple[Arguments, Any] | None:
        """Other inputs of the same kind, with the model's answer to them; None if it takes no others."""
        call = Arguments(self.sample.args, self.sample.kwargs)
        if not any(tensor.is_floating_point() and tensor.dim() for tensor in _tensors(call)):
            return None
        other = call.with_tensors(lambda t: t.flip(*range(t.dim())) if t.is_floating_point() else t)
        try:
            return other, *self.direct((Sample(other.positional, other.named), self.test["seed"]))
        except Exception:  # noqa: BLE001 -- its forward may insist on an order
            return None

    def prove(self, requests: Sequence[Arguments], batches: Batches) -> Parts:
        """Which parts of a batch's answer are one request's; raises NotProven."""
        entry = self.make()

        def ask(call: Arguments) -> Any:
            sample = Sample(call.positional, call.named)
            return answer(entry, self.kind, sample, self.test["seed"], serving=self.serving)

        try:
            return row_proof.prove(ask, requests, batches, self.nearly, self.exactly)
        except NotProven:
            raise
        except Exception as error:  # noqa: BLE001 -- whatever the model raises
            raise NotProven(f"several at once make it raise {describe(error)}") from None

    def nearly(self, expected: Any, got: Any) -> list[str]:
        """Where two answers differ by more than a batch of another size may make them."""
        return self.differences(expected, got, _SLACK)

    @staticmethod
    def exactly(expected: Any, got: Any) -> list[str]:
        """Where two answers differ at all."""
        return differences(expected, got, 0.0, 0.0)

    def differences(self, expected: Any, got: Any, slack: float = 1.0) -> list[str]:
        """Where two answers differ, with so many times the tolerance."""
        return differences(expected, got, self.test["rtol"] * slack, self.test["atol"] * slack)


def _plans(asked: _Asked, unproven: list[str]) -> Iterator[_Plan]:
    """The ways that are worth a try; notes those that would need a proof that there is not."""
    whole = Arguments(asked.sample.args, asked.sample.kwargs)
    given = asked.serving["batches"]
    ways = (given,) if given else _WAYS if asked.kind == "module" and _tensors(whole) else _WAYS[-1:]
    for way in ways:
        try:
            if way == "stack":
                yield from _samples_plans(asked, whole, unproven)
            elif way == "batch":
                short = whole.with_tensors(lambda tensor: tensor[:1] if tensor.dim() else tensor)
                parts = asked.prove([whole, short], way)
                yield _whole_plan(asked, way, whole, parts)
            else:
                yield _whole_plan(asked, way, whole, None)
        except NotProven as error:
            unproven.append(f"{_AS[way]}: {error}")


def _whole_plan(asked: _Asked, way: Batches, whole: Arguments, parts: Parts) -> _Plan:
    others = () if asked.other is None else (asked.other,)
    requests, expected = zip((whole, asked.expected), *others, strict=True)
    return _Plan(way, parts, requests, expected, None, whole=True)


def _samples_plans(asked: _Asked, whole: Arguments, unproven: list[str]) -> Iterator[_Plan]:
    """The example inputs as a batch, whose samples are the requests; then as one sample."""
    rows = _rows(whole)
    if rows is not None:
        try:
            yield _rows_plan(asked, rows, asked.prove(rows, "stack"))
        except NotProven as error:
            unproven.append(f"{_AS['stack']}: {error}")
    yield _whole_plan(asked, "stack", whole, asked.prove([whole], "stack"))


def _rows_plan(asked: _Asked, rows: Sequence[Arguments], parts: Parts) -> _Plan:
    batches = [([*rows[:2]], row_proof.divided(asked.expected, parts, len(rows)))]
    if len(rows) == 1 and asked.other is not None and (other := _rows(asked.other[0])) is not None:
        batches.append((other, row_proof.divided(asked.other[1], parts, 1)))
    requests = [row for given, _ in batches for row in given]
    expected = [part for given, parts_of in batches for part in parts_of[: len(given)]]
    return _Plan("stack", parts, requests, expected, 0, whole=len(rows) == 1)


def _handler_plans(asked: _Asked) -> Iterator[_Plan]:
    rows = list(asked.sample.args[0])
    answers = asked.expected if isinstance(asked.expected, list) else []
    if len(answers) == len(rows):  # else TorchServe answers 503, and so does _first_that_works
        yield _Plan(None, None, rows, answers, 0, whole=len(rows) == 1)


def _tensors(call: Arguments) -> list[torch.Tensor]:
    return [each for each in (*call.positional, *call.named.values()) if isinstance(each, torch.Tensor)]


def _rows(call: Arguments) -> list[Arguments] | None:
    """The samples of a batch; None if its tensors have no first dimension in common."""
    sizes = {tensor.size(0) if tensor.dim() > 1 else 0 for tensor in _tensors(call)}
    if len(sizes) != 1 or 0 in sizes:
        return None
    return [call.with_tensors(itemgetter(index)) for index in range(sizes.pop())]


def _first_that_works(asked: _Asked, plans: Iterable[_Plan], unproven: list[str]) -> ServeCheck:
    failed: dict[str, list[str]] = {}
    for plan in plans:
        of: Callable[[Any], Iterator[Form]] = row_forms if asked.kind == "handler" else forms_of
        try:
            columns = [list(of(request)) for request in plan.requests]
        except TypeError as error:
            failed.setdefault(str(error), []).append(_AS[plan.way])
            continue
        for forms in zip(*columns, strict=False):
            try:
                notes = _try(asked, plan, forms)
            except NotProven as error:
                if (said := f"{_AS[plan.way]}: {error}") not in unproven:
                    unproven.append(said)
            except _Wrong as error:
                form = {JSON: ", as JSON", BYTES: ", as bytes"}.get(forms[0].content_type, "")
                failed.setdefault(str(error), []).append(f"{_AS[plan.way]}{form}")
            else:
                first = forms[0]
                notes += _too_large(first, asked.answer_bytes)
                if plan.way == "each" and unproven:
                    notes.append(f"{_ONE_BY_ONE}: {'; '.join(unproven)}")
                found = FoundRequest(
                    first.content_type, first.body, plan.way, plan.parts, plan.part, notes, asked.answer_bytes
                )
                return ServeCheck(found)
    for said in unproven:
        place, _, why = said.partition(": ")
        failed.setdefault(why, []).append(place)
    if not failed:
        failed[f"it gave no list of {len(asked.sample.args[0])} answers to as many requests"] = [_AS[None]]
    lines = [f"{'; '.join(places)}: {why}" for why, places in failed.items()]
    said = "no request over HTTP is answered as the model answers its example inputs:\n    "
    return ServeCheck(refusal=said + "\n    ".join(lines) + f"\n  What to do: {_REMEDIES}")


def _too_large(form: Form, answer_bytes: int) -> list[str]:
    measured = (
        ("a request of its example inputs", len(form.body), MOST_REQUEST_BYTES, "max_request_size"),
        ("the answer to its example inputs", answer_bytes, MOST_RESPONSE_BYTES, "max_response_size"),
    )
    return [
        f"{what} has {size:,} bytes, and TorchServe takes {most:,} unless {setting} says more"
        for what, size, most, setting in measured
        if size > most
    ]


def _try(asked: _Asked, plan: _Plan, forms: Sequence[Form]) -> list[str]:
    """Ask alone, then together. What could not be compared, in words.

    Raises:
        _Wrong: a request is not answered, or otherwise than it should be.
        NotProven: a request means another call than the proof was made with.
        CannotSend: an answer cannot be sent.
    """
    pair = [*zip(forms, plan.expected, strict=True)]
    notes: set[str] = set()
    proven = plan.requests[0] if plan.parts is not None else None
    if plan.way and proven is not None and not is_like(call_of(forms[0]), proven, plan.way):
        raise NotProven(
            "requests bring something else than its example inputs, such as a list of numbers as a tensor"
        )
    with _asking(asked, plan.way, plan.parts, proven) as ask:
        for index, (form, expected) in enumerate(pair[:2]):
            (got,) = ask([form])
            # The model is as new as the one that was called: this must be its answer, random or not.
            notes |= _compare(asked, expected, got, "alone", strict=plan.whole and index == 0)
        together = pair if len(pair) > 1 else [*pair, *pair]
        answers = ask([form for form, _ in together])
    for (_, expected), got in zip(together, answers, strict=True):
        notes |= _compare(asked, expected, got, f"in a batch of {len(together)}", strict=False)
    return sorted(notes)


def _compare(asked: _Asked, expected: Any, got: Any, how: str, *, strict: bool) -> set[str]:
    found = asked.differences(_in_tensors(_sent(expected)), _in_tensors(got), 1.0 if strict else _SLACK)
    if not found:
        return set()
    if strict or asked.repeatable:
        raise _Wrong(f"{how}, it answers otherwise than when it is called: {found[0]}")
    return {_UNREPEATABLE}


# ---- asking -------------------------------------------------------------------------------------


class _Served(DefaultHandler):
    """Raises what the server would answer with 503 and a line in its log."""

    def _note(self, error: Exception, text: str) -> None:
        if isinstance(error, CannotSend):
            raise error
        raise _Wrong(text) from error


@contextlib.contextmanager
def _asking(
    asked: _Asked, way: Batches | None, parts: Parts, proven: Arguments | None = None
) -> Iterator[Callable[[Sequence[Form]], list[Any]]]:
    """What answers a batch of requests, with a model of its own; its answers are as clients read them."""
    entry = asked.make()
    with tempfile.TemporaryDirectory(prefix="interpool-model-") as folder:
        handle = None
        if asked.kind == "handler":
            handle = handler_of(entry, handler_context([{}], Path(folder)))
        if handle is None:
            serving: Serving = {**asked.serving, "batches": way, "parts": parts}
            handle = _Served(entry, "model", tracebacks=False, serving=serving, proven=proven).handle

        def ask(forms: Sequence[Form]) -> list[Any]:
            rows, headers = zip(*map(row_of, forms), strict=True)
            context = handler_context(rows, Path(folder), headers)
            seed_all(asked.test["seed"])
            try:
                answers = handle(list(rows), context)
            except (_Wrong, CannotSend):
                raise
            except Exception as error:
                raise _Wrong(f"it raised {describe(error)}") from error
            if not isinstance(answers, list) or len(answers) != len(rows):
                raise _Wrong(f"it gave no list of {len(rows)} answers to as many requests")
            asked.answer_bytes = _size(answers[0])
            return [_read(each, context, index) for index, each in enumerate(answers)]

        yield ask


def _size(given: Any) -> int:
    """How long an answer is as it is sent; 0 if it cannot be, which shows when it is read."""
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
        raise _Wrong(f"it is answered {code}: {said}")
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
        raise _Wrong("its answers hold tensors or arrays, which a handler must make lists of") from None


def _sent(expected: Any) -> Any:
    """What a client should read."""
    return _sent_as(sendable(expected))


def _sent_as(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    return value if isinstance(value, str) else json.loads(json.dumps(value))


def _in_tensors(value: Any) -> Any:
    """Numbers in lists as tensors, which are compared at once."""
    if isinstance(value, dict):
        return {name: _in_tensors(item) for name, item in value.items()}
    if not isinstance(value, list):
        return value
    if value and is_numeric(value):
        try:
            return torch.tensor(value, dtype=torch.float64)
        except (ValueError, TypeError, RuntimeError, OverflowError):
            pass
    return [_in_tensors(item) for item in value]


def _cannot_send(error: CannotSend) -> str:
    return (
        f"{error.field} is a {error.kind}, which no answer over HTTP can hold, so every request would fail\n"
        "  What to do: keep it out of the answer (transformers' caches: use_cache=False in the model's "
        "configuration), or pack a function around the model that returns only what clients need. "
        "--no-serve-check packs it as it is"
    )


# ---- the request again --------------------------------------------------------------------------


def repeat_request(
    make: Callable[[], Any],
    kind: EntryKind,
    held: Any,
    test: SelfTest,
    serving: Serving,
    request: RequestRecord,
    body: bytes,
) -> list[str]:
    """See ServingSide."""
    asked = _Asked(make, kind, held, test, serving)
    part = request["part"]
    expected = asked.expected if part is None else _part(asked.expected, part, kind)
    try:
        with _asking(asked, serving["batches"], serving["parts"]) as ask:
            (got,) = ask([Form(request["content_type"], body)])
        _compare(asked, expected, got, "asked by its own request", strict=False)
    except (_Wrong, CannotSend) as error:
        return [str(error)]
    return []


def _part(expected: Any, index: int, kind: EntryKind = "module") -> Any:
    if kind == "handler" or isinstance(expected, torch.Tensor):
        return expected[index]
    if isinstance(expected, Mapping):
        return {name: _part(value, index) for name, value in expected.items()}
    return [_part(value, index) for value in expected]
