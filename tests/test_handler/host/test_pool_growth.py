"""When a pool may grow beyond its size."""

from __future__ import annotations

from typing import Any

import pool_states
import pytest

from interpool.handler.host.pool_growth import describe, holders, relieved_size

SIZE = (2, 2)


def _stats(
    *interpreters: tuple[str | None, float], waiting: dict[str, int] | None = None, most: int = 2
) -> Any:
    """What a pool does whose interpreters serve these models for so many seconds; None: is free."""
    waiting = waiting or {}
    running = [model for model, _ in interpreters if model is not None]
    models = {
        name: {"waiting": waiting.get(name, 0), "running": running.count(name)}
        for name in {*waiting, *running}
    }
    each = [
        pool_states.interpreter(number, "leased" if model else "free", model=model, seconds=seconds)
        for number, (model, seconds) in enumerate(interpreters, 1)
    ]
    counts = {"waiting": sum(waiting.values()), "max_size": most, "failure": "", "growing": False}
    return {"interpreters": each, "models": models, **counts}


STUCK = (("/bad", 9.0), ("/bad", 30.0))


def test_a_model_that_has_none_gets_one_more_while_calls_that_last_hold_them_all() -> None:
    stats = _stats(*STUCK, waiting={"/good": 1})
    assert holders(stats) == {"/bad": 30.0}
    assert relieved_size(stats, SIZE, has_memory=lambda: True) == (2, 3)
    assert "1 calls wait" in describe(stats, {"/bad": "bad/1.0"})
    assert "bad/1.0 for 30 s" in describe(stats, {"/bad": "bad/1.0"})


@pytest.mark.parametrize(
    "stats",
    [
        _stats(("/bad", 9.0), ("/bad", 1.0), waiting={"/good": 1}),
        _stats(("/bad", 9.0), (None, 0.0), waiting={"/good": 1}),
        _stats(*STUCK, waiting={"/bad": 3}),
        _stats(*STUCK),
        _stats(waiting={"/good": 1}),
    ],
    ids=["one is short", "one is free", "only its own wait", "no request waits", "no interpreter"],
)
def test_without_waiting_callers_the_pool_keeps_its_size(stats: Any) -> None:
    assert relieved_size(stats, SIZE, has_memory=lambda: True) == SIZE


def test_a_pool_does_not_grow_if_memory_is_short() -> None:
    assert relieved_size(_stats(*STUCK, waiting={"/good": 1}), SIZE, has_memory=lambda: False) == SIZE


def test_a_second_model_whose_calls_last_has_the_pool_grow_again() -> None:
    stats = _stats(*STUCK, ("/worse", 6.0), waiting={"/good": 1}, most=3)
    assert relieved_size(stats, SIZE, has_memory=lambda: True) == (2, 4)


def test_the_pool_has_its_size_again_once_no_request_waits_and_one_is_free() -> None:
    assert relieved_size(_stats(*STUCK, ("/good", 0.1), most=3), SIZE, has_memory=lambda: True) == (2, 3)
    assert relieved_size(_stats(*STUCK, (None, 0.0), most=3), SIZE, has_memory=lambda: True) == SIZE


def test_a_pool_that_serves_has_no_trouble() -> None:
    assert describe(_stats(*STUCK), {}) == ""
    assert describe(_stats(("/a", 0.1), (None, 0.0), waiting={"/b": 1}), {}) == ""


def test_a_pool_without_interpreters_says_why() -> None:
    stats = {"interpreters": [pool_states.interpreter(1, "retired")], "failure": "no room", "waiting": 0}
    assert "no room" in describe(stats, {})
