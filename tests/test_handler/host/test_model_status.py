"""What is said of a model: its counts, and whether it is ready."""

from __future__ import annotations

from typing import Any

import pytest
from pool_states import interpreter, leases, model, pool, worker

from interpool.handler.host.model_status import models_of, why_not_ready


def _reasons(state: dict[str, Any], patience_s: float = 30.0) -> str:
    (view,) = models_of(state)
    return "; ".join(why_not_ready(state, view, patience_s))


def test_a_model_with_connected_workers_and_an_interpreter_is_ready() -> None:
    assert _reasons(pool()) == ""


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (pool(interpreters=None), "have not started yet"),
        (pool(stats={"interpreters": [interpreter(1, "retired"), interpreter(2, "parked")]}), "was retired"),
        (pool(draining=True), "the server is about to end"),
        (pool(workers=[]), "it has no workers"),
        (pool(workers=[worker(state="ending")]), "it has no workers"),
        (pool(workers=[worker(), worker(state="listening")]), "1 of its workers are not connected"),
        (pool(workers=[worker(), worker(started=False)]), "1 of its workers wait for an interpreter"),
        (pool(served={"/m": model(workers_awaited=1)}), "has not started them again yet"),
        (pool(served={"/m": model(reason="no vocabulary", failed_lately=True)}), "no vocabulary"),
        (pool(stats={"models": {"/m": leases(waiting=1, longest_wait_s=31.0)}}), "has waited 31 s"),
    ],
)
def test_a_model_that_cannot_answer_is_not_ready_and_says_why(state: dict[str, Any], reason: str) -> None:
    assert reason in _reasons(state)


def test_a_worker_whose_last_call_still_runs_is_none_of_its_models_any_more() -> None:
    assert _reasons(pool(workers=[worker(), worker(state="ending")])) == ""


def test_a_failed_load_of_long_ago_keeps_no_model_from_being_tried_again() -> None:
    assert _reasons(pool(served={"/m": model(reason="no memory", failed_lately=False)})) == ""


def test_how_long_a_call_may_wait_is_the_askers_choice() -> None:
    state = pool(stats={"models": {"/m": leases(waiting=1, longest_wait_s=31.0)}})
    assert _reasons(state, patience_s=60) == ""


def test_a_model_goes_on_with_the_counts_of_the_one_before_it() -> None:
    before = model(loads=4, worker_ends={"disconnected": 2}, reason="broken once", failed_lately=True)
    (view,) = models_of(pool(gone={"m/1.0": before}))
    assert (view.registered, view.loads, view.starts) == (True, 5, 4)
    assert view.ends == {"disconnected": 2}
    assert not view.failed_lately  # that was the other one


def test_a_model_that_was_unregistered_is_known_and_keeps_its_reason() -> None:
    state = pool(served={}, workers=[], gone={"m/1.0": model(reason="no vocabulary", failed_lately=True)})
    (view,) = models_of(state)
    assert (view.registered, view.reason) == (False, "no vocabulary")


def test_two_directories_of_one_name_count_as_one_model() -> None:
    served = {"/m": model(), "/n": model()}
    stats = {"models": {"/m": leases(), "/n": leases(waiting=2, longest_wait_s=1.5)}}
    (view,) = models_of(pool(served=served, stats=stats, workers=[worker(), worker("/n")]))
    assert (view.leases, view.waits, view.waiting, view.longest_wait_s) == (6, [4, 2, 0], 2, 1.5)
    assert view.workers == {"connected": 2}


@pytest.mark.parametrize(("name", "means_it"), [("m", True), ("m/1.0", True), ("*", True), ("m/2.0", False)])
def test_a_model_is_called_by_its_name_with_or_without_its_version(name: str, means_it: bool) -> None:
    (view,) = models_of(pool())
    assert view.is_called(name) == means_it
