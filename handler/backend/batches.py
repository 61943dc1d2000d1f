"""Combines the calls of several requests into one call."""

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
    """Several calls, combined into one.

    Attributes:
        call: the arguments of the combined call.
        sizes: the sizes of the calls, by which the answer is divided.
    """

    call: Arguments
    sizes: Sizes


def batch_of(calls: Sequence[Arguments], batches: Batches) -> Batch | None:
    """Combine calls into one; None if they must run one at a time, each as it is.

    Tensors at the same place must have the same types and shapes. For ``batch``, their first dimensions may
    differ from call to call, but all tensors of one call must have the same one. It must not be 0, because
    the model might refuse an empty batch, and would not be asked about it.

    All other arguments must have the same type and value. The combined call gets a copy of them, because the
    model may change them and then be called again for each request.

    Args:
        calls: the calls, one or more.
        batches: how requests become calls, see ``Batches``. The result is always None for ``each``, and for
            ``batch`` if there is only one call.
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
    """Whether a proof that was made with one call holds for another call.

    It does if both have the same arguments at the same places. Tensors must have the same types and shapes;
    for ``batch``, their first dimensions may differ. All other arguments must have the same values.

    With other shapes or options a model may behave differently. For example, some layers accept a sample
    without a batch dimension, and would take a stack of such samples for one sample.

    Args:
        call: the call to check.
        proven: the call of the proof.
        batches: how requests become calls, see ``Batches``.
    """
    columns = _columns([call, proven])
    first = 1 if batches == "batch" else 0
    return columns is not None and all(
        one.shape[first:] == other.shape[first:] for one, other in columns if isinstance(one, torch.Tensor)
    )


def _columns(calls: Sequence[Arguments]) -> list[tuple[Any, ...]] | None:
    """The calls' arguments by their place; None if the places differ, or values other than tensors do."""
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
    """Whether a model cannot distinguish two values: ``1``, ``1.0`` and ``True`` are three."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return one == other and math.copysign(1.0, one) == math.copysign(1.0, other)
    if isinstance(one, _PLAIN):
        return bool(one == other)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict):  # a model may depend on the order
        return _same(list(one.items()), list(other.items()))
    return False


def _sizes(columns: Sequence[tuple[Any, ...]]) -> list[int] | None:
    """The first dimension of each call's tensors.

    None if the tensors of one call have different ones, if one is 0, or if the other dimensions differ from
    call to call.
    """
    tensors = [column for column in columns if isinstance(column[0], torch.Tensor)]
    if any(tensor.dim() == 0 for column in tensors for tensor in column):
        return None
    if any(len({tensor.shape[1:] for tensor in column}) > 1 for column in tensors):
        return None
    sizes = [{tensor.size(0) for tensor in row} for row in zip(*tensors, strict=True)]
    return None if any(len(each) > 1 or 0 in each for each in sizes) else [each.pop() for each in sizes]
