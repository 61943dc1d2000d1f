"""The figures of docs/growth.md; ``figures.py`` writes them there."""

from __future__ import annotations

from typing import Any

from marked import markdown_table

from benchmarks.growth.parts import MACHINE, of_fewest_interpreters, parts_of, table


def figures(rows: list[dict[str, Any]]) -> str:
    """The parts, the points, and the machines, in Markdown.

    Args:
        rows: the benchmark's table.
    """
    parts = parts_of(rows)
    titles = (("stock", "stock TorchServe"), ("pool", "interpool"))
    taken = [
        [
            title,
            f"{one.frontend:,.0f}",
            f"{one.frontend_worker:.2g}",
            f"{one.base:,.0f}",
            f"{one.interpreter:,.0f}",
            f"{one.model:.2g}",
            f"{one.worker:,.{0 if one.worker > 10 else 2}f}",
        ]
        for name, title in titles
        for one in (parts[name],)
    ]
    by = {(row["server"], row["models"], row["workers"]): row for row in of_fewest_interpreters(rows)}
    points = []
    for server, models, workers in sorted(by):
        if server == "pool":
            mine, stock = by[server, models, workers], by["stock", models, workers]
            computed = " (computed)" if stock["computed"] else ""
            points.append(
                [
                    f"{models} x {workers}",
                    f"{stock['memory_mb']:,.0f} MB{computed}",
                    f"{mine['memory_mb']:,.0f} MB",
                    *(_latencies(row) for row in (stock, mine)),
                ]
            )
    machines = (
        f"Machines of {MACHINE.cores} cores and {MACHINE.memory / 1000:.0f} GB, {MACHINE.part} of both used:"
    )
    head = ["MB", "frontend", "of it, for a worker", "base", "interpreter", "model", "worker"]
    measured = ["models x workers of each", "stock TorchServe", "interpool, two interpreters"]
    measured += ["p50, p99: stock TorchServe", "interpool"]
    return "\n\n".join(
        [markdown_table(head, taken), markdown_table(measured, points), machines, table(parts)]
    )


def _latencies(row: dict[str, Any]) -> str:
    """Of one client's requests; nothing where the row is computed."""
    return "" if row["computed"] else f"{row['p50_ms']:.1f}, {row['p99_ms']:.1f} ms"
