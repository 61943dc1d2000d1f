"""Finds what models leave in this interpreter that others would meet, and isolates those models."""

from __future__ import annotations

import os

import _interpool
from interpool.handler.backend import loaded_models, model_threads
from interpool.handler.backend.process_view import take_out
from interpool.handler.worker_reports import Report
from interpool.handler.worker_token import WorkerToken
from interpool.native.inside import interpreter_id
from interpool.native.inside.rebinding import Neighbourhood

_neighbourhood = Neighbourhood()
_last: WorkerToken | None = None  # of the worker whose frame was answered last
_served: dict[str, WorkerToken] = {}  # models that ran since the last thorough check, by directory
_unwatched: set[str] = set()  # directories of models whose traces do not count
_has_one_model = False  # no other model meets its traces
_START_S = 0.1  # in which threads that a load has started begin to wait
_MOMENT_S = 0.01  # in which threads that have worked for a call do


def watch(token: WorkerToken) -> None:
    """Note the present environment. Call before a worker's model is loaded."""
    if not token.unwatched:
        _neighbourhood.begin()


def is_touched_by_another(token: WorkerToken) -> bool:
    """Return whether the model that was called before this worker's has changed what this one uses."""
    global _last
    before, _last = _last, token
    if before is None or _has_one_model or before.model_dir == token.model_dir:
        return False
    reason = _neighbourhood.look(at_once=True)
    if not before.unwatched:
        reason = reason or model_threads.at_work(before.model_dir, _MOMENT_S)
    if not reason or before.unwatched:
        return False
    give_to({before.model_dir: before}, reason)
    return True


def check(directory: str, token: WorkerToken, thoroughly: bool) -> dict[str, str]:
    """Find what models have left here since the last check. No other model meets it from now on.

    Args:
        directory: of the model that is in place.
        token: of its worker.
        thoroughly: whether everything is checked. It is from time to time in any case.

    Returns:
        What was found, by the directories of the models that may have left it.
    """
    if token.unwatched:
        _unwatched.add(directory)
    if _has_one_model or token.unwatched:
        return {}
    _served[directory] = token
    thoroughly = thoroughly or _neighbourhood.thorough_look_is_due
    if reason := _neighbourhood.look(at_once=thoroughly):
        return give_to({directory: token}, reason)
    if not thoroughly:
        return {}
    if reason := model_threads.at_work(token.model_dir, _START_S):  # its threads meet no other view
        return give_to({directory: token}, reason)
    take_out()
    found, served = _neighbourhood.look_thoroughly(_unwatched), _served.copy()
    _served.clear()
    if found is None:
        return {}
    authors = {
        one: whose
        for one, whose in served.items()
        if "" in found.paths or any(f"{path}/".startswith(f"{one}/") for path in found.paths)
    }
    return give_to(authors or served, found.text)


def give_to(authors: dict[str, WorkerToken], reason: str) -> dict[str, str]:
    """Isolate models: interpreters of their own serve them from now on.

    If only one model may have left the traces, this interpreter becomes its own. If not, it is retired.

    Args:
        authors: the models that may have left the traces: their workers by directory.
        reason: what the traces are, for people.

    Returns:
        The reason for each, by directory.
    """
    global _has_one_model
    for token in authors.values():
        Report("traces", token.pid, interpreter_id() or 0, reason=reason).send(token.reports)
    (directory, *others) = authors
    if others or not os.path.isdir(directory):
        _interpool.retire_interpreter()
    else:
        _interpool.claim_interpreter(directory)
        _has_one_model = True
    return dict.fromkeys(authors, reason)


def leave(directory: str) -> bool:
    """Unload the model in a directory: interpreters of its own serve it from now on.

    Returns:
        Whether it is unloaded. It is not if this interpreter is its own.
    """
    if _has_one_model:
        return False
    loaded_models.drop(directory)
    take_out()
    if _neighbourhood.look(at_once=True) or _neighbourhood.look_thoroughly(_unwatched):
        _interpool.retire_interpreter()
    return True
