"""Checks that a model answers requests as it does when it is called.

It uses the code that serves, without a server. ``interpool pack`` and ``verify`` call this, through
``archiver_ext/verify/serving_side.py``.

Ways to make requests of the example inputs are tried in this order: samples that are stacked, whole batches,
one call for each request. In each way, JSON is tried first (text or bytes, if the input is that), then what
torch.save writes. The first two ways need a proof that requests which share a call do not depend on each
other (``row_proof``). The result is the first request that passes. Alone and in a batch of two, it gets the
answer that the model gives when it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from interpool.archiver_ext.verify.serving_side import FoundRequest, ServeCheck
from interpool.handler.backend.batches import is_like
from interpool.handler.backend.example_requests import BYTES, JSON, Form, call_of, forms_of, row_forms
from interpool.handler.backend.outputs import CannotSend
from interpool.handler.backend.request_plans import (
    SLACK,
    WAYS_IN_WORDS,
    CalledModel,
    Plan,
    handler_plans,
    plans,
)
from interpool.handler.backend.row_proof import NotProven
from interpool.handler.backend.served_answers import WrongAnswer, as_sent, asking, in_tensors
from interpool.native.archive.format import EntryKind, RequestRecord, SelfTest, Serving
from interpool.native.torchserve import MOST_REQUEST_BYTES, MOST_RESPONSE_BYTES

_UNREPEATABLE = (
    "its answers are random, or depend on earlier calls: requests are answered, and whether rightly could be "
    "checked for the first at most"
)
_ONE_BY_ONE = (
    "requests are answered by a call each: it is not proven that several can share one without a trace of "
    "each other in the answers"
)
_REMEDIES = (
    "choose how requests become calls with --batches; or pack a function around the model. It takes what "
    "requests can bring (JSON, text, bytes, or tensors as torch.save writes them). It returns tensors, "
    "numbers, texts, lists or dicts of them. --no-serve-check packs it as it is"
)


def find_request(
    make: Callable[[], Any], kind: EntryKind, held: Any, test: SelfTest, serving: Serving
) -> ServeCheck:
    """Make requests of a self-test's inputs, and find one that is answered as the model answers its inputs.

    Each is answered alone, and in a batch of two.

    Args:
        make: loads the entry anew.
        kind: of the entry.
        held: the self-test's unpickled content.
        test: the self-test in the manifest.
        serving: how to serve the entry; if it does not set batches, the result does.
    """
    asked = CalledModel(make, kind, held, test, serving)
    unproven: list[str] = []
    try:
        found = handler_plans(asked) if kind == "handler" else plans(asked, unproven)
        return _first_that_works(asked, found, unproven)
    except CannotSend as error:
        return ServeCheck(refusal=_cannot_send(error))


def repeat_request(
    make: Callable[[], Any],
    kind: EntryKind,
    held: Any,
    test: SelfTest,
    serving: Serving,
    request: RequestRecord,
    body: bytes,
) -> list[str]:
    """Compare the answer to an archive's request with its self-test.

    Args:
        make: loads the entry anew.
        kind: of the entry.
        held: the self-test's unpickled content.
        test: the self-test in the manifest, with the tolerance to use.
        serving: how the entry is served, from the manifest.
        request: the request in the manifest.
        body: the request's body.

    Returns:
        The differences, one line each; none if there are none.
    """
    asked = CalledModel(make, kind, held, test, serving)
    part = request["part"]
    try:
        expected = asked.expected if part is None else _part(asked.expected, part, kind)
    except (LookupError, TypeError, ValueError, OverflowError):
        return [f"the self-test's answer has no part {part}, which the request should get"]
    try:
        with asking(asked, serving["batches"], serving["parts"]) as ask:
            (got,) = ask([Form(request["content_type"], body)])
        _compare(asked, expected, got, "asked by its own request", strict=False)
    except (WrongAnswer, CannotSend) as error:
        return [str(error)]
    return []


def _part(expected: Any, index: int, kind: EntryKind = "module") -> Any:
    if kind == "handler" or isinstance(expected, torch.Tensor):
        return expected[index]
    if isinstance(expected, Mapping):
        return {name: _part(value, index) for name, value in expected.items()}
    return [_part(value, index) for value in expected]


def _first_that_works(asked: CalledModel, plans: Iterable[Plan], unproven: list[str]) -> ServeCheck:
    failed: dict[str, list[str]] = {}
    for plan in plans:
        of: Callable[[Any], Iterator[Form]] = row_forms if asked.kind == "handler" else forms_of
        try:
            columns = [list(of(request)) for request in plan.requests]
        except TypeError as error:
            failed.setdefault(str(error), []).append(WAYS_IN_WORDS[plan.way])
            continue
        for forms in zip(*columns, strict=False):
            try:
                notes = _try(asked, plan, forms)
            except NotProven as error:
                if (said := f"{WAYS_IN_WORDS[plan.way]}: {error}") not in unproven:
                    unproven.append(said)
            except WrongAnswer as error:
                form = {JSON: ", as JSON", BYTES: ", as bytes"}.get(forms[0].content_type, "")
                failed.setdefault(str(error), []).append(f"{WAYS_IN_WORDS[plan.way]}{form}")
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
        failed[f"it gave no list of {len(asked.sample.args[0])} answers to as many requests"] = [
            WAYS_IN_WORDS[None]
        ]
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


def _try(asked: CalledModel, plan: Plan, forms: Sequence[Form]) -> list[str]:
    """Ask with single requests, then with a batch. Return descriptions of what could not be compared.

    Raises:
        WrongAnswer: a request gets no answer, or another one than it should.
        NotProven: a request means another call than that with which the proof was made.
        CannotSend: an answer cannot be sent.
    """
    pair = [*zip(forms, plan.expected, strict=True)]
    notes: set[str] = set()
    proven = plan.requests[0] if plan.parts is not None else None
    if plan.way and proven is not None and not is_like(call_of(forms[0]), proven, plan.way):
        raise NotProven(
            "requests bring something else than its example inputs, such as a list of numbers as a tensor"
        )
    with asking(asked, plan.way, plan.parts, proven) as ask:
        for index, (form, expected) in enumerate(pair[:2]):
            (got,) = ask([form])
            # The model is as new as the one that was called: this must be its answer, random or not.
            notes |= _compare(asked, expected, got, "alone", strict=plan.whole and index == 0)
        together = pair if len(pair) > 1 else [*pair, *pair]
        answers = ask([form for form, _ in together])
    for (_, expected), got in zip(together, answers, strict=True):
        notes |= _compare(asked, expected, got, f"in a batch of {len(together)}", strict=False)
    return sorted(notes)


def _compare(asked: CalledModel, expected: Any, got: Any, how: str, *, strict: bool) -> set[str]:
    found = asked.differences(in_tensors(as_sent(expected)), in_tensors(got), 1.0 if strict else SLACK)
    if not found:
        return set()
    if strict or asked.repeatable:
        raise WrongAnswer(f"{how}, it answers otherwise than when it is called: {found[0]}")
    return {_UNREPEATABLE}


def _cannot_send(error: CannotSend) -> str:
    return (
        f"{error.field} is a {error.kind}, which no answer over HTTP can hold, so every request would fail\n"
        "  What to do: keep it out of the answer (transformers' caches: use_cache=False in the model's "
        "configuration; complex numbers: torch.view_as_real), or pack a function around the model that "
        "returns only what clients need. --no-serve-check packs it as it is"
    )
