"""The figures of docs/growth.md, from the run that is kept in ``docs/benchmarks/growth.json``.

.venv/bin/python scripts/benchmarks growth.page    writes them; a test holds the page to them
"""

from __future__ import annotations

import json

from marked import filled, markdown_table

from benchmarks.growth.parts import MACHINE, parts_of, table
from benchmarks.shared.checkout import ROOT

PAGE = ROOT / "docs" / "growth.md"
KEPT = ROOT / "docs" / "benchmarks" / "growth.json"
BY = "scripts/benchmarks/growth/page.py"


def figures() -> str:
    """The parts, some of the measured points, and the machines, in Markdown."""
    rows = json.loads(KEPT.read_text(encoding="utf-8"))["table"]
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
    few = min(row["interpreters"] for row in rows if row["server"] == "pool")
    shown = [row for row in rows if row["interpreters"] in (0, few)]
    by = {(row["server"], row["models"], row["workers"]): row for row in shown}
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
                ]
            )
    machines = (
        f"Machines of {MACHINE.cores} cores and {MACHINE.memory / 1000:.0f} GB, {MACHINE.part} of both used:"
    )
    head = ["MB", "frontend", "of it, for a worker", "base", "interpreter", "model", "worker"]
    measured = ["models x workers of each", "stock TorchServe", "interpool, two interpreters"]
    return "\n\n".join(
        [markdown_table(head, taken), markdown_table(measured, points), machines, table(parts)]
    )


def with_figures() -> str:
    """The page's text with the figures as the kept results have them."""
    return filled(PAGE.read_text(encoding="utf-8"), "growth", figures(), BY)


if __name__ == "__main__":
    PAGE.write_text(with_figures(), encoding="utf-8")
