"""Divides a batch's answer into one part for each of its requests, as its archive's proof allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from interpool.native.archive.format import Parts

Sizes = int | Sequence[int]
"""How many requests a batch has, one of the first dimension for each; or how much of it each has."""


class CannotSplit(Exception):
    """An answer is not as its archive's proof says; the message names the part."""


def split(answer: Any, parts: Parts, sizes: Sizes) -> list[Any]:
    """Divide a batch's answer into one part for each request.

    Args:
        answer: the model's answer to the batch.
        parts: the archive's proof, see ``Parts``.
        sizes: of the requests, see ``Sizes``. If it is a number, the parts lack the first dimension.

    Raises:
        CannotSplit: the answer has another structure or other lengths than was proven.
    """
    return _split("answer", answer, parts, sizes)


def _split(place: str, answer: Any, parts: Parts, sizes: Sizes) -> list[Any]:
    count = sizes if isinstance(sizes, int) else len(sizes)
    if parts == "rows":
        return _rows(place, answer, sizes)
    if parts == "none":
        if answer is not None:
            raise CannotSplit(f"{place} is not None")
        return [None] * count
    if "list" in parts:
        inner = parts["list"]
        if not isinstance(answer, (list, tuple)) or len(answer) != len(inner):
            raise CannotSplit(f"{place} is not a list of {len(inner)}")
        items = zip(answer, inner, strict=True)
        columns = [_split(f"{place}[{index}]", item, each, sizes) for index, (item, each) in enumerate(items)]
        return [[column[index] for column in columns] for index in range(count)]
    inner = parts["dict"]
    named = {str(name): item for name, item in answer.items()} if isinstance(answer, Mapping) else {}
    if not isinstance(answer, Mapping) or named.keys() != inner.keys():
        raise CannotSplit(f"{place} is not an object of {', '.join(inner)}")
    found = {name: _split(f"{place}[{name!r}]", item, inner[name], sizes) for name, item in named.items()}
    return [{name: column[index] for name, column in found.items()} for index in range(count)]


def _rows(place: str, answer: Any, sizes: Sizes) -> list[Any]:
    total = sizes if isinstance(sizes, int) else sum(sizes)
    if length(answer) != total:
        raise CannotSplit(f"{place} has no {total} rows")
    if not isinstance(answer, (torch.Tensor, list, tuple)):
        answer = answer.tolist()  # an array's own index may count labels
    if isinstance(sizes, int):
        return [answer[index] for index in range(total)]
    ends = [sum(sizes[: index + 1]) for index in range(len(sizes))]
    return [answer[end - size : end] for end, size in zip(ends, sizes, strict=True)]


def length(value: Any) -> int:
    """The length of a list, or of the first dimension of a tensor or array; -1 for anything else."""
    if isinstance(value, torch.Tensor):
        return value.size(0) if value.dim() else -1
    if isinstance(value, (list, tuple)):
        return len(value)
    shape = getattr(value, "shape", None) if hasattr(value, "tolist") else None
    return int(shape[0]) if isinstance(shape, tuple) and shape else -1
