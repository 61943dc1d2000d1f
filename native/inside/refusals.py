"""What models were refused in this interpreter because the process is not theirs alone.

A refusal is an exception, which a model may handle in its own way. Whoever serves it may have a
process of its own to offer, and looks here.
"""

from __future__ import annotations

_refusals: list[str] = []
_MOST = 100


def refused(text: str) -> str:
    """Note what somebody is about to be told; gives the text back."""
    if len(_refusals) < _MOST:
        _refusals.append(text)
    return text


def take_refusals() -> list[str]:
    """What was refused since the last time, oldest first."""
    taken = _refusals[:]
    _refusals.clear()
    return taken
