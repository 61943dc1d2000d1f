"""Several requests as one call, and the call's output as one part for each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from interpool.handler.backend.inputs import Arguments
from interpool.handler.backend.outputs import split
from interpool.native.archive.format import Batches


class Batch(NamedTuple):
    """Calls as one.

    Attributes:
        call: what the model is called with.
        split: gives the parts of its output, one for each call; raises CannotSplit.
    """

    call: Arguments
    split: Callable[[Any], list[Any]]


def batch_of(calls: Sequence[Arguments], batches: Batches) -> Batch | None:
    """The calls as one; None if they have to run one at a time, each as it is.

    Tensors at the same place must have the same types and shapes (``batch``: but for their first
    dimensions, which are one call's in all its tensors); whatever else there is must be equal.
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
            merged.append(column[0])
        elif sizes is not None:
            merged.append(torch.cat(column))
        elif len({tensor.shape for tensor in column}) == 1:
            merged.append(torch.stack(column))
        else:
            return None
    first, count = calls[0], len(calls[0].positional)
    call = Arguments(tuple(merged[:count]), dict(zip(first.named, merged[count:], strict=True)))
    return Batch(call, lambda output: split(output, len(calls) if sizes is None else sizes))


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
        if len(kinds) > 1 or (kinds == {None} and not all(_equal(value, column[0]) for value in column)):
            return None
    return columns


def _equal(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except Exception:  # noqa: BLE001 -- lists of tensors, and whatever else defines ==
        return False


def _sizes(columns: Sequence[tuple[Any, ...]]) -> list[int] | None:
    """The first dimension of each call's tensors; None if those of one call differ, or the others do."""
    tensors = [column for column in columns if isinstance(column[0], torch.Tensor)]
    if any(tensor.dim() == 0 for column in tensors for tensor in column):
        return None
    if any(len({tensor.shape[1:] for tensor in column}) > 1 for column in tensors):
        return None
    sizes = [{tensor.size(0) for tensor in row} for row in zip(*tensors, strict=True)]
    return None if any(len(each) > 1 for each in sizes) else [each.pop() for each in sizes]
