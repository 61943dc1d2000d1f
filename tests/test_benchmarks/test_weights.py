"""The weights benchmark: copies are counted with each number of workers, and what it keeps fills the page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench import measured

from benchmarks import figures
from benchmarks.weights import benchmark as weights

WORKERS = [1, 2, 8]
TABLES = ("registrations", "weights", "weights-bars")


def of_a_pool(megabytes: int, copies: float = 1.0, scaled: float = 0.2) -> weights.Figures:
    """Of two rounds; the second one's server is larger."""
    return weights.Figures(
        unpacked_s=[0.1, 0.1],
        registered_s=[0.5, 0.6],
        scaled_s={count: [scaled, scaled] for count in WORKERS if count > 1},
        memory_mb={count: [base + copies * megabytes for base in (250.0, 260.0)] for count in WORKERS},
    )


def of_stock(megabytes: int) -> weights.Figures:
    return weights.Figures(
        unpacked_s=[0.1, 0.1],
        registered_s=[2.0, 3.0],
        scaled_s={count: [2.0, 2.0] for count in WORKERS if count > 1},
        memory_mb={count: [count * (base + megabytes) for base in (150.0, 160.0)] for count in WORKERS},
    )


def found() -> dict[int, weights.ByServer]:
    return {size: {weights.POOL: of_a_pool(size), weights.STOCK: of_stock(size)} for size in (0, 100, 1000)}


def missed(results: dict[int, weights.ByServer]) -> list[str]:
    return [bar.name.partition(":")[0] for bar in weights.bars_of(results) if not bar.met]


def test_copies_are_what_is_above_the_same_server_without_weights() -> None:
    rows = {(row["megabytes"], row["workers"]): row for row in weights.table(found())}
    assert rows.keys() == {(size, count) for size in (0, 100, 1000) for count in WORKERS}
    assert rows[1000, 8]["pool_copies"] == pytest.approx([1, 1])
    assert rows[1000, 8]["stock_copies"] == pytest.approx([8, 8])
    assert rows[0, 8]["pool_copies"] == []
    assert rows[100, 1]["pool_scaled_s"] == []


def test_weights_once_is_asked_of_every_number_of_workers() -> None:
    results = found()
    assert missed(results) == []
    results[100][weights.POOL].memory_mb[2] = [250.0 + 200, 260.0 + 200]
    assert missed(results) == ["1.1 x 100 MB and a pool without weights, over the pool"]


def test_the_largest_model_is_registered_in_a_third_of_the_time() -> None:
    results = found()
    results[1000][weights.POOL].registered_s = [0.7, 1.1]
    assert missed(results) == ["1000 MB"]


def test_the_time_to_scale_does_not_depend_on_weights() -> None:
    results = found()
    results[1000][weights.POOL] = of_a_pool(1000, scaled=0.31)
    assert missed(results) == ["1.5 x 1 to 8 workers without weights, over with 1000 MB"]


def test_what_is_kept_fills_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    tables = [figures.TABLES[figures.PAGE][name] for name in TABLES]
    kept = tmp_path / "docs" / "benchmarks" / "weights.json"
    kept.parent.mkdir(parents=True)
    bars = [vars(bar) | {"met": bar.met} for bar in weights.bars_of(found())]
    rows = {"registrations": weights.registrations(found()), "table": weights.table(found()), "bars": bars}
    kept.write_text(json.dumps(rows))
    registrations, by_workers, asked = (table() for table in tables)
    assert "| 1,000 MB | 2.50 (2.00 to 3.00) s | 0.55 (0.50 to 0.60) s | 4.5 | 0.10," in registrations
    assert "| 1,000 MB x 8 | 9,240 MB | 1,255 MB | 7.4 | 8.00 | 1.00 | 2.00 s | 0.20 s |" in by_workers
    assert "| 0 MB x 1 | 155 MB | 255 MB | 0.6 |  |  |  |  |" in by_workers
    assert asked.count("| met |") == len(bars)


@pytest.mark.long
def test_weights_measures_both_servers_with_each_number_of_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, _ = measured(
        tmp_path, "weights", "--sizes", "1", "--workers", "1,2", "--rounds", "1", "--settle", "0"
    )
    steps = [(size, workers) for size in (0, 1) for workers in (1, 2)]
    assert [(row["megabytes"], row["workers"]) for row in result["table"]] == steps
    for row in result["table"]:
        for server in weights.SERVERS:
            assert row[f"{server}_mb"][0] > 0
            assert len(row[f"{server}_scaled_s"]) == row["workers"] - 1
            assert len(row[f"{server}_copies"]) == row["megabytes"]
    assert [row["megabytes"] for row in result["registrations"]] == [0, 1]
    assert all(
        row[f"{server}_{what}"][0] > 0
        for row in result["registrations"]
        for server in weights.SERVERS
        for what in ("s", "unpacked_s")
    )
    assert len(result["bars"]) == 3
    monkeypatch.setattr(figures, "kept", lambda _name: result)
    assert "| 1 MB x 2 |" in figures.weights()
    assert "| 1 MB | " in figures.registrations()
