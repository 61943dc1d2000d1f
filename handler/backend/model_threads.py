"""Finds threads of a model that may run while the interpreter serves another model.

Torch's settings, random numbers, ``os.environ`` and the other parts of a view are the interpreter's. So such
a thread would compute with the other model's values, and might change them. A thread that waits until its own
model gives it work does neither.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType

from interpool.handler.backend import stdio
from interpool.native.inside import owners
from interpool.native.upstream.cpython_private import RENEWS_WORKERS, waits_for_work
from interpool.native.upstream.torch_private import plain_name

# Threads that begin in these modules or functions call only their library's own code.
_LIBRARIES = ("tqdm._monitor", "torch._inductor", RENEWS_WORKERS)
_PAUSE_S = 0.001
_MOST_LISTED = 3


def at_work(directory: str, patience: float) -> str:
    """Return where threads of a model are that may run at any time, as in ``Found.text``; "" if none may.

    Args:
        directory: the model's.
        patience: how long threads may take, in seconds, to end or to begin to wait: one that has just given
            its result still runs.
    """
    deadline = time.monotonic() + patience
    while found := list(_found(directory)):
        if time.monotonic() >= deadline:
            more = f" and {len(found) - _MOST_LISTED} more" if len(found) > _MOST_LISTED else ""
            return f"it has threads that go on when no call runs: {', '.join(found[:_MOST_LISTED])}{more}"
        time.sleep(_PAUSE_S)
    return ""


def _found(directory: str) -> Iterator[str]:
    """Yield the name and place of each of the model's threads that is at work.

    The interpreter's own list of threads has those, too, that no ``threading.Thread`` started.
    """
    frames = sys._current_frames()
    if len(frames) == 1:
        return  # the calling thread's
    known = {thread.ident: thread for thread in threading.enumerate()}
    for ident, frame in frames.items():
        if ident == threading.get_ident() or waits_for_work(frame) or _is_of_library(frame):
            continue
        thread = known.get(ident)
        if f"{stdio.starter_of(thread) or _model_in(frame)}/".startswith(f"{directory}/"):
            yield f"{thread.name if thread else 'a thread without a name'} ({_place(frame)})"


def _model_in(frame: FrameType) -> str:
    """Return the directory or archive of the model whose code began the thread; "" if no model's runs."""
    paths = [path for each in _stack(frame) if (path := owners.path_of(each.f_globals))]
    return paths[-1] if paths else ""


def _is_of_library(frame: FrameType) -> bool:
    """Return whether the thread with this innermost frame runs a library's function."""
    first = frame
    for each in _stack(frame):
        if each.f_globals.get("__name__") != threading.__name__:
            first = each
    place = f"{first.f_globals.get('__name__')}.{first.f_code.co_name}."
    return any(place.startswith(f"{library}.") for library in _LIBRARIES)


def _place(frame: FrameType) -> str:
    """Return the innermost place in a model's code; else the innermost one."""
    place = next((each for each in _stack(frame) if owners.is_models(each.f_globals)), frame)
    return plain_name(f"{place.f_code.co_filename}:{place.f_lineno}")


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
