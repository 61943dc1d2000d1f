"""Interpreters in which models fail that load elsewhere are found, and no others."""

from __future__ import annotations

from interpool.handler.host.failing_interpreters import FailingInterpreters


def test_an_interpreter_is_broken_if_two_models_fail_in_it_that_load_elsewhere() -> None:
    failing = FailingInterpreters()
    assert failing.note("/a", 1, loaded=True) == []
    assert failing.note("/b", 1, loaded=True) == []
    assert failing.note("/a", 2, loaded=False) == []
    assert failing.note("/a", 2, loaded=False) == []  # the same one again
    assert failing.note("/b", 2, loaded=False) == [2]
    assert failing.note("/b", 2, loaded=True) == []  # it is reported once


def test_models_that_fail_everywhere_say_nothing_of_interpreters() -> None:
    failing = FailingInterpreters()
    assert all(
        failing.note(model, interpreter, loaded=False) == []
        for model in ("/a", "/b", "/c")
        for interpreter in (1, 2)
    )


def test_a_load_that_succeeds_there_clears_it() -> None:
    failing = FailingInterpreters()
    for model in ("/a", "/b"):
        failing.note(model, 1, loaded=True)
    failing.note("/a", 2, loaded=False)
    failing.note("/c", 2, loaded=True)
    assert failing.note("/b", 2, loaded=False) == []
    assert failing.note("/a", 2, loaded=False) == [2]
