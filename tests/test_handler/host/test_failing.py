"""Interpreters in which models fail that load elsewhere are found, and no others."""

from __future__ import annotations

from pathlib import Path

from interpool.handler.host.failing import FailingInterpreters


def test_two_models_that_load_elsewhere_and_not_here_say_that_it_is_broken() -> None:
    failing = FailingInterpreters()
    assert failing.note("/a", 1, loaded=True) == []
    assert failing.note("/b", 1, loaded=True) == []
    assert failing.note("/a", 2, loaded=False) == []
    assert failing.note("/a", 2, loaded=False) == []  # the same one again
    assert failing.note("/b", 2, loaded=False) == [2]
    assert failing.note("/b", 2, loaded=True) == []  # it is told once


def test_what_loads_elsewhere_only_later_counts_too() -> None:
    failing = FailingInterpreters()
    failing.note("/a", 2, loaded=False)
    failing.note("/b", 2, loaded=False)
    assert failing.note("/a", 1, loaded=True) == []
    assert failing.note("/b", 3, loaded=True) == [2]


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


def test_a_model_that_is_gone_counts_no_more(tmp_path: Path) -> None:
    failing = FailingInterpreters()
    for model in ("/gone", str(tmp_path), "/tmp"):
        failing.note(model, 1, loaded=True)
    failing.note("/gone", 2, loaded=False)
    failing.forget_gone()
    assert failing.note(str(tmp_path), 2, loaded=False) == []
    assert failing.note("/tmp", 2, loaded=False) == [2]
