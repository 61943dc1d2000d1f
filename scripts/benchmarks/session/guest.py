"""What the session benchmark calls, in plain Python and inside an interpreter alike."""

from __future__ import annotations

from typing import Any


def nothing() -> None:
    """The least that a call can be."""


def same(x: Any) -> Any:
    """In and out again."""
    return x
