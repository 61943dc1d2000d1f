"""Which models are loaded ahead, and which are dropped: the rule, and that it is carried out."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

from interpool.handler.host.model_placement import (
    ENOUGH,
    LAST_COPY_S,
    SHORT,
    Action,
    Interpreter,
    Keeper,
    plan,
)

IDLE_S = 600.0
PLENTY = 1.0


def free(number: int, **idle_s: float) -> Interpreter:
    return Interpreter(number, True, idle_s)


def leased(number: int, **idle_s: float) -> Interpreter:
    return Interpreter(number, False, idle_s)


def test_a_model_in_use_is_loaded_in_one_more_interpreter_than_it_has_workers() -> None:
    pool = [free(1, a=5.0), free(2), free(3)]
    assert plan(pool, {"a": 1}, IDLE_S, PLENTY) == [Action(True, 2, "a")]
    pool = [free(1, a=5.0), free(2, a=5.0), free(3)]
    assert plan(pool, {"a": 1}, IDLE_S, PLENTY) == []
    assert plan(pool, {"a": 2}, IDLE_S, PLENTY) == [Action(True, 3, "a")]


def test_the_model_in_the_fewest_interpreters_is_loaded_where_the_fewest_models_are() -> None:
    pool = [free(1, a=1.0, b=1.0), free(2, a=1.0), free(3)]
    assert plan(pool, {"a": 4, "b": 4}, IDLE_S, PLENTY) == [Action(True, 3, "b")]


def test_nothing_is_loaded_ahead_in_the_last_free_interpreter() -> None:
    assert plan([leased(1, a=0.0), free(2)], {"a": 1}, IDLE_S, PLENTY) == []


def test_a_model_that_no_interpreter_has_is_left_to_its_first_request() -> None:
    assert plan([free(1), free(2)], {"a": 1}, IDLE_S, PLENTY) == []


def test_a_load_that_failed_is_not_tried_again_there() -> None:
    pool = [free(1, a=5.0), free(2), free(3, b=700.0)]
    workers = {"a": 1, "b": 1}
    assert plan(pool, workers, IDLE_S, PLENTY, {(2, "a")}) == [Action(True, 3, "a")]
    assert plan(pool, workers, IDLE_S, PLENTY, {(2, "a"), (3, "a")}) == []


def test_an_idle_model_stays_where_it_was_served_last_and_nowhere_else() -> None:
    pool = [free(1, a=700.0), free(2, a=650.0), leased(3, a=800.0), free(4, a=900.0)]
    assert plan(pool, {"a": 4}, IDLE_S, PLENTY) == [Action(False, 1, "a"), Action(False, 4, "a")]
    assert plan([free(1, a=9000.0)], {"a": 1}, IDLE_S, PLENTY) == []


def test_a_model_loaded_ahead_is_not_dropped_again_while_it_is_in_use() -> None:
    assert plan([free(1, a=1.0), free(2, a=9000.0)], {"a": 1}, IDLE_S, PLENTY) == []


def test_a_model_in_use_is_dropped_from_idle_interpreters_beyond_its_need() -> None:
    pool = [free(1, a=1.0), free(2, a=2.0), free(3, a=10.0), free(4, a=700.0)]
    assert plan(pool, {"a": 1}, IDLE_S, PLENTY) == [Action(False, 4, "a")]


def test_without_a_time_nothing_is_ever_idle() -> None:
    assert plan([free(1, a=9e9), free(2, a=9e9), free(3, a=9e9)], {"a": 1}, 0.0, PLENTY) == []


def test_short_of_memory_the_copy_that_was_idle_longest_goes_and_nothing_is_loaded() -> None:
    short = SHORT - 0.01
    pool = [free(1, a=5.0, b=9000.0), free(2, a=7.0), free(3)]
    assert plan(pool, {"a": 2, "b": 2}, IDLE_S, short) == [Action(False, 2, "a")]
    pool = [free(1, a=5.0, b=9000.0), free(2), free(3)]
    assert plan(pool, {"a": 2, "b": 2}, IDLE_S, short) == [Action(False, 1, "b")]
    pool = [free(1, a=5.0, b=LAST_COPY_S - 1), leased(2, b=0.0), free(3)]
    assert plan(pool, {"a": 2, "b": 2}, IDLE_S, short) == [Action(False, 1, "b")]
    assert plan([free(1, a=5.0)], {"a": 2}, IDLE_S, short) == []
    assert plan([free(1, a=5.0), free(2)], {"a": 2}, IDLE_S, ENOUGH - 0.01) == []


def test_a_model_without_workers_is_left_alone() -> None:
    assert plan([free(1, gone=9000.0), free(2, gone=9000.0)], {}, IDLE_S, 0.0) == []


def test_a_load_ahead_that_lacks_a_descriptor_leaves_none_open() -> None:
    def one(number: int, idle_s: list[float]) -> dict[str, Any]:
        return {
            "interpreter": number,
            "state": "free",
            "affinities": ["a"][: len(idle_s)],
            "idle": idle_s,
            "owner": None,
        }

    stats = {"interpreters": [one(1, [5.0]), one(2, []), one(3, [])], "reserve": 0}
    manager: Any = SimpleNamespace(stats=lambda: stats)
    worker: Any = SimpleNamespace(
        state="connected",
        own_state=False,
        registration=SimpleNamespace(model_dir="a"),
        connection=SimpleNamespace(load_command=b"load"),
        load_limit_s=1.0,
        stdio=(2, -1),  # the second cannot be copied, as if no descriptor were left
    )
    before = os.listdir("/proc/self/fd")
    with pytest.raises(OSError, match="Bad file descriptor"):
        Keeper(IDLE_S, free_memory=lambda: PLENTY).keep(manager, [worker])
    assert os.listdir("/proc/self/fd") == before
