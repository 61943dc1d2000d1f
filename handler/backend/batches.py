"""Several requests as one call."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from interpool.handler.backend.inputs import Arguments
from interpool.handler.backend.parts import Sizes
from interpool.native.archive.format import Batches

_PLAIN = (type(None), bool, int, str, bytes)


class Batch(NamedTuple):
    """Calls as one.

    Attributes:
        call: what the model is called with.
        sizes: of the calls, by which its answer is divided.
    """

    call: Arguments
    sizes: Sizes


def batch_of(calls: Sequence[Arguments], batches: Batches) -> Batch | None:
    """The calls as one; None if they have to run one at a time, each as it is.

    Tensors at the same place must have the same types and shapes (``batch``: but for their first
    dimensions, which are one call's in all its tensors, and not 0: the model may refuse nothing, and would
    not be asked). Whatever else there is must be of the same type and value; the call gets a copy, as the
    model may change it, and be called again for each.
    """
    if batches == "each" or (batches == "batch" and len(calls) == 1):
        return None
    columns = _columns(calls)
    if columns is None or not any(isinstance(value, torch.Tensor) for value, *_ in columns):
        return None
    sizes = None if batches == "stack" else _sizes(columns)
    if batches == "batch" and sizes is None:
        return None
    merged = []
    for column in columns:
        if not isinstance(column[0], torch.Tensor):
            merged.append(copy.deepcopy(column[0]))
        elif sizes is not None:
            merged.append(torch.cat(column))
        elif len({tensor.shape for tensor in column}) == 1:
            merged.append(torch.stack(column))
        else:
            return None
    first, count = calls[0], len(calls[0].positional)
    call = Arguments(tuple(merged[:count]), dict(zip(first.named, merged[count:], strict=True)))
    return Batch(call, len(calls) if sizes is None else sizes)


def is_like(call: Arguments, proven: Arguments, batches: Batches) -> bool:
    """Whether what was proven of calls like one holds for another.

    It has the same arguments at the same places: tensors of the same types and shapes (``batch``: but for
    their first dimensions), and else the same values. For other shapes or options a model may do otherwise:
    layers that take a sample without a batch, too, would take a stack of such samples for one.
    """
    columns = _columns([call, proven])
    first = 1 if batches == "batch" else 0
    return columns is not None and all(
        one.shape[first:] == other.shape[first:] for one, other in columns if isinstance(one, torch.Tensor)
    )


def _columns(calls: Sequence[Arguments]) -> list[tuple[Any, ...]] | None:
    """The calls' arguments by their place; None if these differ, or what is no tensor does."""
    keys = [(len(call.positional), tuple(call.named)) for call in calls]
    if keys.count(keys[0]) != len(keys):
        return None
    columns = [
        *zip(*(call.positional for call in calls), strict=True),
        *zip(*(call.named.values() for call in calls), strict=True),
    ]
    for column in columns:
        kinds = {value.dtype if isinstance(value, torch.Tensor) else None for value in column}
        if len(kinds) > 1 or (kinds == {None} and not all(_same(value, column[0]) for value in column[1:])):
            return None
    return columns


def _same(one: Any, other: Any) -> bool:
    """Whether a model cannot tell two values apart: ``1``, ``1.0`` and ``True`` are three."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return one == other and math.copysign(1.0, one) == math.copysign(1.0, other)
    if isinstance(one, _PLAIN):
        return bool(one == other)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict):  # its order is what a model may go by
        return _same(list(one.items()), list(other.items()))
    return False


def _sizes(columns: Sequence[tuple[Any, ...]]) -> list[int] | None:
    """The first dimension of each call's tensors; None if those of one call differ, or others, or it is 0."""
    tensors = [column for column in columns if isinstance(column[0], torch.Tensor)]
    if any(tensor.dim() == 0 for column in tensors for tensor in column):
        return None
    if any(len({tensor.shape[1:] for tensor in column}) > 1 for column in tensors):
        return None
    sizes = [{tensor.size(0) for tensor in row} for row in zip(*tensors, strict=True)]
    return None if any(len(each) > 1 or 0 in each for each in sizes) else [each.pop() for each in sizes]
