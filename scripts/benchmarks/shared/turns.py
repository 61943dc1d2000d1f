"""Rounds in which what is compared takes turns: a machine's speed drifts, so nothing is always first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def in_turns(compared: Sequence[T], rounds: int) -> Iterator[T]:
    """All of them in each round, beginning with another one each time."""
    for number in range(rounds):
        first = number % len(compared)
        yield from (*compared[first:], *compared[:first])
