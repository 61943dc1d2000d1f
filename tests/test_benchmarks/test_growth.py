"""Growth: parts are found again in what they add up to, and machines are counted by cores and by memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bench import measured

from benchmarks.growth import benchmark as growth
from benchmarks.growth import page, plot
from benchmarks.growth.parts import Load, Machine, Parts, machines, parts_of, workers_of

POOL = Parts(frontend=300, frontend_worker=1, base=150, interpreter=50, model=0.25, worker=0.1)
STOCK = Parts(frontend=300, frontend_worker=1, base=40, interpreter=0, model=0, worker=160)
MACHINE = Machine(cores=8, memory=32_000, part=0.5)


def rows(
    server: str, parts: Parts, steps: list[tuple[int, int]], interpreters: int = 0
) -> list[dict[str, Any]]:
    return [
        {
            "server": server,
            "models": models,
            "workers": workers,
            "interpreters": interpreters,
            "memory_mb": parts.memory(models, workers, interpreters),
            "frontend_mb": parts.frontend + models * workers * parts.frontend_worker,
            "p50_ms": 2.0,
            "p99_ms": 4.0,
            "computed": False,
        }
        for models, workers in steps
    ]


STEPS = [(1, 1), (1, 2), (1, 8), (2, 2), (50, 2)]


def test_the_parts_are_found_again_in_what_was_measured() -> None:
    pool = [*rows("pool", POOL, STEPS, 2), *rows("pool", POOL, STEPS[:1], 4)]
    found = parts_of([*pool, *rows("stock", STOCK, STEPS[:4])])
    for name, parts in (("pool", POOL), ("stock", STOCK)):
        assert vars(found[name]) == pytest.approx(vars(parts), abs=1e-6)


def test_what_is_computed_lies_on_the_line_through_what_was_measured() -> None:
    all_rows = growth.with_computed(rows("stock", STOCK, [(1, 1), (1, 2), (2, 2)]), STEPS)
    by_step = {(row["models"], row["workers"]): row for row in all_rows}
    assert by_step.keys() == set(STEPS)
    assert by_step[50, 2]["memory_mb"] == pytest.approx(40 + 100 * 160)
    assert [step for step, row in by_step.items() if row["computed"]] == [(1, 8), (50, 2)]


def test_machines_are_counted_by_memory_where_that_is_short() -> None:
    load = Load(models=100, rate=10, seconds=0.001, weights=200)
    assert machines(STOCK, False, load, MACHINE) == 5  # 100 x 2 x 361 MB on 15.66 GB each
    assert machines(POOL, True, load, MACHINE) == 2  # 100 x 204.2 MB on 15.15 GB each


def test_machines_are_counted_by_cores_where_these_are_short() -> None:
    load = Load(models=2, rate=1000, seconds=0.02, weights=1)
    for parts, shared in ((STOCK, False), (POOL, True)):
        assert machines(parts, shared, load, MACHINE) == 5  # 20 cores of work, 4 of each machine


def test_a_busy_model_has_as_many_workers_as_its_rate_needs() -> None:
    assert workers_of(Load(10, rate=100, seconds=0.2, weights=0), MACHINE) == 4
    assert workers_of(Load(10, rate=1, seconds=0.2, weights=0), MACHINE) == 2


def test_a_machine_that_does_not_hold_the_server_is_refused() -> None:
    with pytest.raises(ValueError, match="does not hold the server itself"):
        machines(POOL, True, Load(1, 1, 0.01, 1), Machine(cores=2, memory=1000, part=0.5))


def test_models_and_workers_go_up_by_steps_to_the_most() -> None:
    assert growth.upwards(100, (1, 2, 5, 10, 20, 50)) == [1, 2, 5, 10, 20, 50, 100]
    assert growth.upwards(3, (1, 2, 5)) == [1, 2, 3]
    assert growth.upwards(1, (1, 2)) == [1]


def test_the_figure_is_drawn_alike_from_measurements_and_from_what_is_kept(tmp_path: Path) -> None:
    table = [
        *rows("pool", POOL, STEPS, 2),
        *growth.with_computed(rows("stock", STOCK, [(1, 1), (1, 2)]), STEPS),
    ]
    texts = [
        plot.draw(some, tmp_path / f"{number}.svg").read_text()
        for number, some in enumerate((table, json.loads(json.dumps(table))))
    ]
    assert texts[0] == texts[1]


def test_the_page_shows_latencies_of_what_was_measured_only() -> None:
    stock = growth.with_computed(rows("stock", STOCK, [(1, 1), (1, 2)]), STEPS)
    written = page.figures([*rows("pool", POOL, STEPS, 2), *rows("pool", POOL, STEPS[:1], 4), *stock])
    assert "| 1 x 2 | 360 MB | 251 MB | 2.0, 4.0 ms | 2.0, 4.0 ms |" in written
    assert "| 1 x 8 | 1,320 MB (computed) | 251 MB |  | 2.0, 4.0 ms |" in written


@pytest.mark.long
def test_growth_measures_models_and_workers_on_one_host(tmp_path: Path) -> None:
    result, printed = measured(
        tmp_path, "growth", "--models", "2", "--each", "1", "--workers", "2", "--stock-workers", "1",
        "--requests", "4", "--settle", "0",
    )  # fmt: skip
    steps = [(1, 1), (2, 1), (1, 2)]
    table = [row for row in result["table"] if row["interpreters"] != growth.MORE]
    assert len(table) == len(result["table"]) - 1
    assert sorted((row["server"], row["models"], row["workers"], row["computed"]) for row in table) == (
        sorted(
            [("pool", *step, False) for step in steps] + [("stock", *step, step != (1, 1)) for step in steps]
        )
    )
    assert all(row["memory_mb"] > 0 and row["frontend_mb"] > 0 for row in result["table"])
    assert set(result["parts"]) == {"pool", "stock"}
    assert "| models | requests/s |" in printed
    assert (tmp_path / "growth.svg").stat().st_size > 1000
