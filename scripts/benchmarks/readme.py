"""The README's table of figures, from the results that are kept in ``docs/benchmarks/``.

.venv/bin/python scripts/benchmarks/readme.py    writes it; a test holds the README to it
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
BEGIN, END = "<!-- figures: scripts/benchmarks/readme.py -->\n", "<!-- end of figures -->\n"
HEAD = "on a shared machine of two cores, side by side in one run", "stock TorchServe", "interpool"


def kept(name: str) -> dict[str, Any]:
    """What is kept of that benchmark's last published run."""
    result: dict[str, Any] = json.loads((ROOT / "docs" / "benchmarks" / f"{name}.json").read_text())
    return result


def rows() -> list[tuple[str, str, str]]:
    """What is measured, stock's figure, and the pool's."""
    startup = kept("startup")["measured"]
    models = {(one["models"], one["workers"]): one for one in kept("memory")["table"]}
    rest = kept("rest")["measured"]

    def seconds(name: str) -> str:
        return f"{statistics.median(startup[name]):.2g} s"

    def memory(key: tuple[int, int], server: str) -> str:
        text = f"{models[key][f'{server}, MB']:,.0f} MB"
        return f"{text} (computed)" if server == "stock" and models[key]["stock computed"] else text

    def rate(case: str, server: str) -> str:
        return f"{statistics.median(rest[f'{case}: {server}']):,.0f}"

    first = "a server just started: from the first model's registration to its first correct answer"
    return [
        (
            "`PUT min_worker=4` on a warm server, until each of the four has answered rightly",
            seconds("stock: answered"),
            seconds("pool: answered"),
        ),
        (first, seconds("stock: first"), seconds("pool: first, host by serve")),
        ("memory, two small models with two workers each", memory((2, 2), "stock"), memory((2, 2), "pool")),
        ("memory, ten with eight", memory((10, 8), "stock"), memory((10, 8), "pool")),
        *(
            (
                f"requests a second, {what}, two workers, eight clients",
                rate(f"{case}, 2 workers, 8 clients", "stock"),
                rate(f"{case}, 2 workers, 8 clients", "pool"),
            )
            for case, what in (("tiny", "a model of 0.05 ms"), ("1 MB", "a megabyte and no model"))
        ),
    ]


def table() -> str:
    """The table, in Markdown."""
    lines = [HEAD, ("---",) * len(HEAD), *rows()]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def filled(text: str) -> str:
    """The README's text with the table in its place; raises ValueError where it has no place."""
    before, _, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"{README} has no lines {BEGIN.strip()!r} and {END.strip()!r}")
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    README.write_text(filled(README.read_text()))
