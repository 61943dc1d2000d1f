"""Finds what models leave in this interpreter that others would meet, and isolates those models."""

from __future__ import annotations

import os

import _interpool
from interpool.handler.backend import loaded_models, model_threads
from interpool.handler.backend.host_reports import report
from interpool.handler.backend.process_view import take_out
from interpool.handler.worker_reports import Report
from interpool.handler.worker_token import WorkerToken
from interpool.native.inside import interpreter_id
from interpool.native.inside.rebinding import Neighbourhood

_neighbourhood = Neighbourhood()
_last: WorkerToken | None = None  # of the worker whose frame was answered last
_served: dict[str, WorkerToken] = {}  # models that ran since the last thorough check, by directory
_is_due = False  # a thorough check, before another model meets this interpreter
_unwatched: set[str] = set()  # directories of models whose traces do not count
_has_one_model = False  # no other model meets its traces
_START_S = 0.1  # in which threads that a load or a first call has started begin to wait
_MOMENT_S = 0.01  # in which threads that have worked for another call do


def watch(token: WorkerToken) -> bool:
    """Note the present environment. Call before a worker's model is loaded.

    Returns:
        Whether the model can be loaded here. It cannot if another model has changed what it uses.
    """
    if is_touched_by_another(token):
        return False
    if not token.unwatched:
        _neighbourhood.begin()
    return True


def is_touched_by_another(token: WorkerToken) -> bool:
    """Return whether the models that ran before this worker's have changed what this one uses.

    No other model meets such a change from now on. A thorough check takes long. So it runs here, and not
    after the call that it is for: a model that has the interpreter to itself never waits for one.
    """
    global _last
    before, _last = _last, token
    if before is None or _has_one_model or before.model_dir == token.model_dir:
        return False
    is_due = _served and (_is_due or _neighbourhood.thorough_look_is_due)
    if is_due:  # it is no part of the worker's call, whose time may be limited
        report(token, "searching")
    try:
        reason = _neighbourhood.look(at_once=True)
        if not before.unwatched:
            reason = reason or model_threads.at_work(before.model_dir, _START_S if _is_due else _MOMENT_S)
        if reason and not before.unwatched:
            give_to({before.model_dir: before}, reason)
            return True
        return bool(is_due and _check_thoroughly())
    finally:
        if is_due:
            report(token, "searched")


def note_call(directory: str, token: WorkerToken, is_first: bool) -> None:
    """Note that a model was called, and find what it has replaced.

    Args:
        directory: of the model that is in place.
        token: of its worker.
        is_first: whether it is the model's first call here, which leaves most.
    """
    global _is_due
    if token.unwatched:
        _unwatched.add(directory)
    elif not _has_one_model:
        _served[directory] = token
        _is_due = _is_due or is_first
        if reason := _neighbourhood.look():
            give_to({directory: token}, reason)


def check_now(directory: str, token: WorkerToken, thoroughly: bool = True) -> dict[str, str]:
    """Find what a load, or a call that was cut short, has left here, and calls before it.

    No other model meets it from now on.

    Args:
        directory: of the model that is in place.
        token: of its worker.
        thoroughly: whether to do the thorough check now, and not before another model meets this interpreter.

    Returns:
        What was found, by the directories of the models that may have left it.
    """
    global _is_due
    if token.unwatched:
        _unwatched.add(directory)
    if _has_one_model or token.unwatched:
        return {}
    _served[directory] = token
    if reason := _neighbourhood.look(at_once=True):
        return give_to({directory: token}, reason)
    if reason := model_threads.at_work(token.model_dir, _START_S):  # its threads meet no other view
        return give_to({directory: token}, reason)
    if thoroughly:
        return _check_thoroughly()
    _is_due = True
    return {}


def _check_thoroughly() -> dict[str, str]:
    """Find what the models that ran since the last such check have left; see ``check_now``."""
    global _is_due
    take_out()
    found, served = _neighbourhood.look_thoroughly(_unwatched), _served.copy()
    _served.clear()
    _is_due = False
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
