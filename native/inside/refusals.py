"""Records what this interpreter has refused to its models, because they share the process.

A refusal is an exception, which a model may catch. The server reads these records. It can then serve the
model from a separate process, or from another pool if only another model conflicts with it.
"""

from __future__ import annotations

import os

_refusals: list[str] = []
_conflicts: list[tuple[str, str]] = []  # the model's path, and the message
_MOST = 100


def refused(text: str) -> str:
    """Record the message of a refusal; returns it."""
    if len(_refusals) < _MOST:
        _refusals.append(text)
    return text


def conflicting(path: str, text: str) -> str:
    """Record the message of a refusal whose cause is another model in this interpreter; returns it.

    Args:
        path: of the refused model's directory or archive.
        text: the message.
    """
    if len(_conflicts) < _MOST:
        _conflicts.append((path, text))
    return text


def take_conflict(directory: str | os.PathLike[str]) -> str:
    """Return the first conflict of a model in that directory since the last call; "" if there was none."""
    if not _conflicts:
        return ""
    place = os.path.join(os.path.realpath(directory), "")
    own = [each for each in _conflicts if os.path.join(os.path.realpath(each[0]), "").startswith(place)]
    _conflicts[:] = [each for each in _conflicts if each not in own]
    return own[0][1] if own else ""


def take_refusals() -> list[str]:
    """Return the messages of refusals since the last call, oldest first."""
    taken = _refusals[:]
    _refusals.clear()
    return taken
