"""The serving benchmark: it checks answers, and keeps what it measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bench import measured

from benchmarks.serving import benchmark as serving
from benchmarks.serving import models
from benchmarks.serving.frameworks import FRAMEWORKS, PACKED, STOCK


def figures(rate: float, memory: float, scaled: float) -> serving.Figures:
    """Of two rounds with two and with eight workers."""
    return serving.Figures(
        first_s=[3.0, 5.0],
        another_s=[1.0, 1.0],
        scaled_s=[scaled, scaled],
        rate={count: [rate * count, rate * count] for count in (2, 8)},
        p50_ms={count: [1.0, 2.0] for count in (2, 8)},
        p99_ms={count: [4.0, 4.0] for count in (2, 8)},
        workers_mb={count: [memory * count, memory * count] for count in (2, 8)},
        frontends_mb={count: [100.0, 100.0] for count in (2, 8)},
    )


def found() -> serving.Found:
    return serving.Found(
        figures={"small": {PACKED: figures(95.0, 10.0, 0.2), STOCK: figures(100.0, 160.0, 2.0)}}
    )


def test_interpool_is_judged_by_stock_torchserve_in_the_same_rounds() -> None:
    bars = {bar.name: bar for bar in serving.bars_of(found(), [2, 8])}
    assert bars[f"small: {PACKED}'s rate over stock's"].ratio == pytest.approx(0.95)
    assert bars[f"small: stock's workers' memory over {PACKED}'s"].ratio == pytest.approx(16)
    assert bars[f"small: stock's 1 to 8 workers over {PACKED}'s"].ratio == pytest.approx(10)
    assert all(bar.met for bar in bars.values())


def test_a_pool_that_fails_misses_a_bar() -> None:
    results = serving.Found(failed={PACKED: "small: WrongAnswerError: no"})
    (bar,) = serving.bars_of(results, [2])
    assert not bar.met


def test_a_wrong_answer_is_told_from_a_right_one(monkeypatch: pytest.MonkeyPatch) -> None:
    right = models.build("small").answer(models.REQUEST)
    for said, wrong in ((right, False), ({"y": [0.5] * 16}, True)):
        body = json.dumps(said).encode()
        monkeypatch.setattr(serving, "ask", lambda _url, _request, body=body: (body, json.loads(body)))
        if wrong:
            with pytest.raises(serving.WrongAnswerError, match="which is not"):
                serving.right_answer("small", "http://nowhere")
        else:
            assert serving.right_answer("small", "http://nowhere") == body


def run(results: Path, *arguments: str) -> tuple[dict[str, Any], str]:
    return measured(results, "serving", "--rounds", "1", "--seconds", "0.3", "--warm", "0.1", *arguments)


@pytest.mark.long
def test_serving_measures_a_pool_over_http(tmp_path: Path) -> None:
    result, _ = run(tmp_path, "--only", "small", "--frameworks", PACKED, "--workers", "2")
    assert result["failed"] == {}
    figures = result["figures"]["small"][PACKED]
    for what in ("rate", "p50_ms", "p99_ms", "workers_mb", "frontends_mb"):
        ((workers, values),) = figures[what].items()
        assert (workers, len(values)) == ("2", 1)
        assert values[0] > 0, what
    assert all(len(figures[what]) == 1 for what in ("first_s", "another_s", "scaled_s"))


@pytest.mark.long
def test_serving_measures_every_framework_over_http(tmp_path: Path) -> None:
    result, _ = run(tmp_path, "--workers", "1", "2")
    assert result["failed"] == {}
    for by_name in result["figures"].values():
        assert list(by_name) == list(FRAMEWORKS)
