"""Pools on a terminal."""

from __future__ import annotations

import io
from typing import Any

import pytest
from pool_states import interpreter, leases, model, pool, worker
from rich.console import Console

from interpool.handler.commands import watch as watching


def _shown(*pools: dict[str, Any], silent: list[str] | None = None) -> str:
    console = Console(file=io.StringIO(), width=160)
    console.print(watching.render(list(pools), silent or [], "no pool host is running"))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_each_interpreter_shows_what_it_does_and_for_how_long() -> None:
    busy = interpreter(1, "leased", model="/m", seconds=75.0, affinities=["/m"])
    text = _shown(pool(stats={"interpreters": [busy, interpreter(2, "parked")], "growing": True}))
    assert "1  leased  m/1.0  1:15 min" in text
    assert "2  parked" in text
    assert "1 of at most 4, one more being started" in text


def test_each_model_shows_its_workers_waits_and_whether_it_is_ready() -> None:
    waiting = leases(waiting=2, longest_wait_s=3.21)
    text = _shown(
        pool(stats={"models": {"/m": waiting}}, workers=[worker(), worker(state="listening", started=False)])
    )
    for words in ("1 connected, 1 listening", "2, longest 3.21 s", "100.0 ms", "no: 1 of its workers"):
        assert words in text
    assert "yes" in _shown(pool())


def test_a_model_that_could_not_be_loaded_is_shown_for_a_while() -> None:
    lately = model("broken/1.0", reason="no [b]vocabulary[/b]", failed_lately=True)
    assert "gone: no [b]vocabulary[/b]" in _shown(pool(gone={"broken/1.0": lately}))
    assert "broken" not in _shown(pool(gone={"broken/1.0": model("broken/1.0")}))


def test_trouble_of_a_host_is_shown() -> None:
    assert "TROUBLE  the disk [b]is full" in _shown({**pool(), "trouble": "the disk [b]is full"})
    assert "TROUBLE" not in _shown(pool())


def test_on_a_terminal_it_is_shown_in_place(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(watching, "INTERVAL_S", 0)
    asked: list[int] = []

    def ask() -> tuple[list[dict[str, Any]], list[str]]:
        asked.append(1)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return [pool()], []

    watching.watch(ask, "nobody")
    said = capsys.readouterr().out
    assert len(asked) == 3
    assert "\x1b[" in said
    assert "default" in said
