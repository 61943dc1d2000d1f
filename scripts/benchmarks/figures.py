"""The tables of figures in README and docs/benchmarks.md, from the results kept in ``docs/benchmarks/``.

.venv/bin/python scripts/benchmarks/figures.py    writes them; a test holds both pages to them
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "support"))

from marked import filled  # noqa: E402

README, PAGE = ROOT / "README.md", ROOT / "docs" / "benchmarks.md"
BY = "scripts/benchmarks/figures.py"
SERVERS = "stock", "pool", "at once", "bound"


def kept(name: str) -> dict[str, Any]:
    """What is kept of that benchmark's last published run."""
    result: dict[str, Any] = json.loads((ROOT / "docs" / "benchmarks" / f"{name}.json").read_text())
    return result


def markdown(head: list[str], rows: list[list[str]]) -> str:
    """A table."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def spread(values: list[float], digits: int = 0) -> str:
    """``median (least to most)``."""
    middle, least, most = statistics.median(values), min(values), max(values)
    return f"{middle:,.{digits}f} ({least:,.{digits}f} to {most:,.{digits}f})"


# ---- the README's ----------------------------------------------------------------------------


def headlines() -> str:
    """What is measured, stock's figure, and the pool's."""
    startup, rest = kept("startup")["measured"], kept("rest")["measured"]
    models = {(one["models"], one["workers"]): one for one in kept("memory")["table"]}

    def row(what: str, stock: str, pool: str) -> list[str]:
        return [what, stock, pool]

    def seconds(name: str) -> str:
        return f"{statistics.median(startup[name]):.2g} s"

    def memory(what: str, key: tuple[int, int]) -> list[str]:
        one = models[key]
        computed = " (computed)" if one["stock computed"] else ""
        return row(what, f"{one['stock, MB']:,.0f} MB{computed}", f"{one['pool, MB']:,.0f} MB")

    def rate(what: str, case: str) -> list[str]:
        each = [statistics.median(rest[f"{case}, 2 workers, 8 clients: {name}"]) for name in SERVERS[:2]]
        return row(f"requests a second, {what}, two workers, eight clients", *(f"{one:,.0f}" for one in each))

    four = "`PUT min_worker=4` on a warm server, until each of the four has answered rightly"
    first = "a server just started: from the first model's registration to its first correct answer"
    return markdown(
        ["on a shared machine of two cores, side by side in one run", "stock TorchServe", "interpool"],
        [
            row(four, seconds("stock: answered"), seconds("pool: answered")),
            row(first, seconds("stock: first"), seconds("pool: first, host by serve")),
            memory("memory, two small models with two workers each", (2, 2)),
            memory("memory, ten with eight", (10, 8)),
            rate("a tower of two gated layers", "tiny"),
            rate("a megabyte, and no model", "1 MB"),
        ],
    )


# ---- those of docs/benchmarks.md -------------------------------------------------------------


def bars(name: str) -> str:
    """What was asked of a benchmark, and what came out."""
    rows = [
        [bar["name"], f"{bar['ratio']:.3g}", f"{bar['least']:g}", "met" if bar["met"] else "**missed**"]
        for bar in kept(name)["bars"]
    ]
    return markdown(["bar", "ratio", "at least", ""], rows)


def requests() -> str:
    """Rates, 99th percentiles and CPU time of each case."""
    rows = []
    for label, case in kept("rest")["cases"].items():
        for name in SERVERS:
            cpu, own = case["cpu_ms"][name], case["own_cpu_ms"].get(name)
            besides = f"{statistics.median(cpu) - statistics.median(own):.3f} ms" if own else ""
            rates = [
                one / other for one, other in zip(case["rates"][name], case["rates"]["stock"], strict=True)
            ]
            rows.append(
                [
                    label if name == "stock" else "",
                    name,
                    spread(case["rates"][name]),
                    f"{statistics.median(rates):.2f}",
                    ", ".join(f"{statistics.median(case[part][name]):.1f}" for part in ("p50", "p99"))
                    + " ms",
                    f"{statistics.median(cpu):.3f} ms",
                    besides,
                ]
            )
    head = [
        "what",
        "",
        "requests a second",
        "over stock",
        "p50, p99",
        "CPU time of the workers",
        "besides the model's",
    ]
    return markdown(head, rows)


def first_models() -> str:
    """From a registration to the first correct answer, and what follows it."""
    measured = kept("startup")["measured"]
    stock = measured["stock: first"]
    rows = []
    for name, values in measured.items():
        ratio = ""
        if "first" in name and "p99" not in name:
            ratio = f"{statistics.median(a / b for a, b in zip(values, stock, strict=True)):.2f}"
        rows.append([name, f"{spread(values, 3)} s", ratio])
    return markdown(["what", "time", "over stock's first"], rows)


def interpreters() -> str:
    """What a further interpreter adds."""
    measured = {name: statistics.median(values) for name, values in kept("memory")["measured"].items()}
    rows = []
    for kind, label in (
        ("lean", "lean imports"),
        ("full", "`INTERPOOL_FULL_IMPORT=1`"),
        ("process", "a Python process with the same"),
    ):
        memory = [f"{what}: {part}, MB" for what in ("bare", "BERT") for part in ("pss", "dirty")]
        cells = [measured.get(f"{kind}, {what}") for what in (*memory, "ready, s of CPU")]
        rows.append([label, *("" if one is None else f"{one:.3g}" for one in cells)])
    head = [
        "",
        "bare: PSS, MB",
        "private dirty",
        "with BERT, over its weights: PSS",
        "private dirty",
        "ready: s of CPU",
    ]
    return markdown(head, rows)


def models_and_workers() -> str:
    """Memory of both servers."""
    rows = []
    for one in kept("memory")["table"]:
        star = " \\*" if one["stock computed"] else ""
        pool, stock = one["pool, MB"], one["stock, MB"]
        what = f"{one['models']} x {one['workers']}"
        rows.append([what, f"{pool:,.0f} MB", f"{stock:,.0f} MB{star}", f"{stock / pool:.1f}"])
    return markdown(["models x workers of each", "pool", "stock", "stock over pool"], rows)


def iterations() -> str:
    """Iterations a second, over those of two processes."""
    measured = kept("scaling")["measured"]
    rows = []
    for name, values in measured.items():
        over = measured["packaged: two processes" if name.startswith("packaged") else "two processes"]
        ratio = statistics.median(a / b for a, b in zip(values, over, strict=True))
        rows.append([name, spread(values), f"{ratio:.3f}"])
    return markdown(["what", "iterations a second", "over two processes"], rows)


Tables = dict[str, Callable[[], str]]
TABLES: dict[Path, Tables] = {
    README: {"figures": headlines},
    PAGE: {
        "interpreters": interpreters,
        "models-and-workers": models_and_workers,
        "memory-bars": lambda: bars("memory"),
        "requests": requests,
        "rest-bars": lambda: bars("rest"),
        "iterations": iterations,
        "scaling-bars": lambda: bars("scaling"),
        "first-models": first_models,
        "startup-bars": lambda: bars("startup"),
    },
}


def with_tables(page: Path) -> str:
    """The page's text with its tables as the kept results have them.

    Raises ValueError without a place for one.
    """
    text = page.read_text(encoding="utf-8")
    for name, table in TABLES[page].items():
        text = filled(text, name, table(), BY)
    return text


if __name__ == "__main__":
    for each in TABLES:
        each.write_text(with_tables(each), encoding="utf-8")
