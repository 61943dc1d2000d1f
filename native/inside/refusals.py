"""What models were refused in this interpreter because the process is not theirs alone.

A refusal is an exception, which a model may handle in its own way. Whoever serves it may have a
process of its own to offer, and looks here; or a pool of its own, where a neighbour alone is in the way.
"""

from __future__ import annotations

_refusals: list[str] = []
_conflicts: list[str] = []
_MOST = 100


def refused(text: str) -> str:
    """Note what somebody is about to be told; gives the text back."""
    if len(_refusals) < _MOST:
        _refusals.append(text)
    return text


def conflicting(text: str) -> str:
    """Note what a model is about to be told that a neighbour in this interpreter is in the way of."""
    if len(_conflicts) < _MOST:
        _conflicts.append(text)
    return text


def take_conflict() -> str:
    """The first of these since the last time, "" if there was none."""
    first = _conflicts[0] if _conflicts else ""
    _conflicts.clear()
    return first


def take_refusals() -> list[str]:
    """What was refused since the last time, oldest first."""
    taken = _refusals[:]
    _refusals.clear()
    return taken
