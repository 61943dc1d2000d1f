"""The state of Python's and of numpy's global random numbers, of which each model has its own."""

from __future__ import annotations

import random
from typing import Any

from interpool.native.upstream.cpython_private import globals_of

_get, _set, _seed = random.getstate, random.setstate, random.seed  # a model may replace the functions


def current() -> tuple[Any, Any]:
    """Return the states; numpy's is None as long as it is not imported."""
    numpys = _of_numpy()
    return _get(), None if numpys is None else numpys.get_state(legacy=False)


def put(state: tuple[Any, Any]) -> None:
    """Put in place what ``current`` has returned."""
    pythons, of_numpy = state
    _set(pythons)
    if (numpys := _of_numpy()) is not None:
        if of_numpy is None:
            numpys.seed()
        else:
            numpys.set_state(of_numpy)


def seed() -> None:
    """Begin anew, by the system's random bytes, as in a process that has just started."""
    _seed()
    if (numpys := _of_numpy()) is not None:
        numpys.seed()


def _of_numpy() -> Any:
    """Return numpy's global generator; None if it is not imported."""
    return globals_of("numpy.random.mtrand").get("_rand")
