"""Proves which parts of a model's batch answer belong to one request alone.

The model is called with one, two and three different requests at once, and then with three of which one is
changed. A part belongs to a request under three conditions. It follows the batch's size. It equals the answer
that the request gets alone. No change of another request changes a bit of it.

These changes reveal a length that depends on the content. They also reveal values that are computed over all
rows: sums, normalisation, scales of quantization.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from interpool.handler.backend.batches import Batch, batch_of
from interpool.handler.backend.inputs import Arguments
from interpool.handler.backend.parts import CannotSplit, Sizes, length, split
from interpool.native.archive.format import Batches, Parts

Ask = Callable[[Arguments], Any]
Differences = Callable[[Any, Any], Sequence[str]]
_TOGETHER = 3


class NotProven(Exception):
    """Requests cannot share a call; the message says why, in a sentence's rest."""


def prove(
    ask: Ask, requests: Sequence[Arguments], batches: Batches, alike: Differences, equal: Differences
) -> Parts:
    """Prove which parts of a batch's answer belong to one request.

    Args:
        ask: returns the model's answer to a call, as plain data; with the same random numbers each time.
        requests: one or more that the model accepts; for ``batch``, batches of different sizes.
        batches: how several of them become a call.
        alike: returns the differences of two answers that a batch of another size does not explain.
        equal: returns all differences of two answers.

    Raises:
        NotProven: there is no such proof.
        Exception: what the model raises for the requests as they are.
    """
    trio = _different(ask, requests, batches)
    together = _merged(trio, batches)
    answers = [(_sizes([each], batches), _ask(ask, [each], batches)) for each in trio]
    answers += [
        (_sizes(trio[:2], batches), _ask(ask, trio[:2], batches)),
        (together.sizes, ask(together.call)),
    ]
    parts = _parts("answer", [(_total(sizes), answer) for sizes, answer in answers])
    if equal(answers[-1][1], ask(together.call)):
        raise NotProven("the same batch is answered otherwise the second time")
    *singles, pair, three = (divided(answer, parts, sizes) for sizes, answer in answers)
    alone = [part for single in singles for part in single]
    for how, found in (("two", pair), ("three", three)):
        for one, other in zip(alone, found, strict=False):
            if said := alike(one, other):
                raise NotProven(f"in a batch of {how}, a request is answered otherwise than alone: {said[0]}")
    for changed in range(_TOGETHER):
        _hold_to(ask, trio, batches, parts, changed, three, equal)
    _hold_beside(ask, trio[0], batches, parts, equal)
    return parts


def _hold_to(
    ask: Ask,
    trio: Sequence[Arguments],
    batches: Batches,
    parts: Parts,
    changed: int,
    expected: Sequence[Any],
    equal: Differences,
) -> None:
    """Change one request of three in every way that the model takes; the others' parts must not change."""
    tried = False
    for other in variations(trio[changed]):
        calls = [other if index == changed else call for index, call in enumerate(trio)]
        batch = _merged(calls, batches)
        try:
            answer = ask(batch.call)
        except Exception:  # noqa: BLE001 -- not an input of this model's
            continue
        found = divided(answer, parts, batch.sizes)
        for index in set(range(_TOGETHER)) - {changed}:
            if said := equal(expected[index], found[index]):
                raise NotProven(f"a request's answer depends on the others of its batch: {said[0]}")
        tried = True
    if not tried:
        raise NotProven(
            "the model takes no change of its example inputs, so nothing shows whether requests depend "
            "on each other. Example inputs of several different samples may help"
        )


def _hold_beside(ask: Ask, request: Arguments, batches: Batches, parts: Parts, equal: Differences) -> None:
    """Batch the request with two that have smaller values; the parts of these two must not change.

    A value that is computed from the largest one of a batch is revealed only if no other request has one as
    large.
    """
    for other in variations(request):
        try:
            without, beside = (_merged([first, other, other], batches) for first in (other, request))
            answers = [(ask(batch.call), batch.sizes) for batch in (without, beside)]
        except Exception:  # noqa: BLE001 -- not an input of this model's
            continue
        expected, found = (divided(answer, parts, sizes) for answer, sizes in answers)
        for index in range(1, _TOGETHER):
            if said := equal(expected[index], found[index]):
                raise NotProven(f"a request's answer depends on the others of its batch: {said[0]}")


def _ask(ask: Ask, calls: Sequence[Arguments], batches: Batches) -> Any:
    batch = batch_of(calls, batches)
    return ask(calls[0] if batch is None and len(calls) == 1 else _merged(calls, batches).call)


def _merged(calls: Sequence[Arguments], batches: Batches) -> Batch:
    batch = batch_of(calls, batches)
    if batch is None:
        raise NotProven("requests like its example inputs cannot be put together")
    return batch


def _sizes(calls: Sequence[Arguments], batches: Batches) -> Any:
    """The sizes as ``split`` takes them, also for a single call."""
    if batches == "stack":
        return len(calls)
    return _merged([*calls, *calls], batches).sizes[: len(calls)]  # type: ignore[index]


def _total(sizes: Any) -> int:
    return sizes if isinstance(sizes, int) else sum(sizes)


def divided(answer: Any, parts: Parts, sizes: Sizes) -> list[Any]:
    """Divide a batch's answer into one part for each request.

    Args:
        answer: the model's.
        parts: how to divide it, see ``Parts``.
        sizes: the sizes of the requests, see ``Sizes``.

    Raises:
        NotProven: the answer does not have the structure or the lengths that ``parts`` says.
    """
    try:
        return split(answer, parts, sizes)
    except CannotSplit as error:
        raise NotProven(f"the form of its answer depends on the data: {error}") from None


# ---- what follows the batch ----------------------------------------------------------------------


def _parts(place: str, answers: Sequence[tuple[int, Any]]) -> Parts:
    """What the answers to batches of several sizes have in common; raises NotProven."""
    values = [answer for _, answer in answers]
    lengths = [length(value) for value in values]
    if len({total for total, _ in answers}) > 1 and lengths == [total for total, _ in answers]:
        return "rows"
    if all(value is None for value in values):
        return "none"
    totals = [total for total, _ in answers]
    first = values[0]
    if isinstance(first, list) and all(isinstance(value, list) for value in values) and len({*lengths}) == 1:
        return {
            "list": [
                _parts(f"{place}[{index}]", [*zip(totals, column, strict=True)])
                for index, column in enumerate(zip(*values, strict=True))
            ]
        }
    if isinstance(first, dict) and all(isinstance(value, dict) for value in values):
        if any(value.keys() != first.keys() for value in values):
            raise NotProven(f"{place} has other names from batch to batch")
        return {
            "dict": {
                name: _parts(f"{place}[{name!r}]", [(total, value[name]) for total, value in answers])
                for name in first
            }
        }
    raise NotProven(f"{place} has no part for each request")


# ---- other inputs of the same kind ------------------------------------------------------------------


def _different(ask: Ask, requests: Sequence[Arguments], batches: Batches) -> list[Arguments]:
    """Three requests, as different as the model takes them."""
    first, *others = requests
    found = [first]
    for index, other in enumerate((*others, *variations(first))):
        if len(found) == _TOGETHER:
            break
        if batch_of([first, other], batches) is None:
            continue
        try:
            _ask(ask, [other], batches)
        except Exception:  # noqa: BLE001 -- not an input of this model's
            if batches == "batch" and index < len(others):
                raise NotProven("it does not take batches of every size") from None
            continue
        found.append(other)
    return [*found, first, first][:_TOGETHER]


def variations(call: Arguments) -> list[Arguments]:
    """The call with other values of the same types and shapes in its tensors: mild ones first."""
    made: list[Arguments] = []
    for floats, others in _CHANGES:
        try:
            other = _map(call, floats, others)
        except RuntimeError:  # torch cannot do that with this type
            continue
        if not _is_same(call, other) and not any(_is_same(other, before) for before in made):
            made.append(other)
    return made


def _backwards(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.flip(*range(tensor.dim())) if tensor.dim() else tensor


def _turned(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.flatten().roll(1).reshape(tensor.shape)


def _filled(with_value: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda tensor: torch.full_like(tensor, with_value(tensor).item()) if tensor.numel() else tensor


def _inverted(tensor: torch.Tensor) -> torch.Tensor:
    return ~tensor if tensor.dtype == torch.bool else tensor


def _flags(tensor: torch.Tensor) -> torch.Tensor:
    return (tensor > tensor.min()).to(tensor.dtype) if tensor.numel() else tensor


Change = Callable[[torch.Tensor], torch.Tensor]
# Of floating-point numbers, and of whole ones and booleans.
_CHANGES: Sequence[tuple[Change, Change]] = (
    (_backwards, _backwards),
    (lambda t: (t + _backwards(t)) / 2, _turned),
    (torch.neg, _filled(torch.min)),
    (torch.zeros_like, _filled(torch.max)),
    (lambda t: t * 1000, torch.zeros_like),
    (lambda t: t / 1000, _flags),
    (lambda t: torch.full_like(t, torch.nan), _inverted),
    (lambda t: torch.full_like(t, torch.inf), lambda t: t + 1 if t.dtype != torch.bool else t),
)


def _map(call: Arguments, floats: Change, others: Change) -> Arguments:
    return call.with_tensors(lambda t: (floats if t.is_floating_point() or t.is_complex() else others)(t))


def _is_same(one: Arguments, other: Arguments) -> bool:
    values = zip(
        (*one.positional, *one.named.values()), (*other.positional, *other.named.values()), strict=True
    )
    return all(torch.equal(a, b) for a, b in values if isinstance(a, torch.Tensor))
