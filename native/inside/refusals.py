"""What models were refused in this interpreter because the process is not theirs alone.

A refusal is an exception, which a model may handle in its own way. Whoever serves it may have a
process of its own to offer, and looks here; or a pool of its own, where a neighbour alone is in the way.
"""

from __future__ import annotations

import os

_refusals: list[str] = []
_conflicts: list[tuple[str, str]] = []  # what the model was loaded from, and what it was told
_MOST = 100


def refused(text: str) -> str:
    """Note what somebody is about to be told; gives the text back."""
    if len(_refusals) < _MOST:
        _refusals.append(text)
    return text


def conflicting(path: str, text: str) -> str:
    """Note what the model of that path is about to be told: a neighbour in this interpreter is in its way."""
    if len(_conflicts) < _MOST:
        _conflicts.append((path, text))
    return text


def take_conflict(directory: str | os.PathLike[str]) -> str:
    """The first of these since the last time, of a model in that directory; "" if there was none."""
    if not _conflicts:
        return ""
    place = os.path.join(os.path.realpath(directory), "")
    own = [each for each in _conflicts if os.path.join(os.path.realpath(each[0]), "").startswith(place)]
    _conflicts[:] = [each for each in _conflicts if each not in own]
    return own[0][1] if own else ""


def take_refusals() -> list[str]:
    """What was refused since the last time, oldest first."""
    taken = _refusals[:]
    _refusals.clear()
    return taken
