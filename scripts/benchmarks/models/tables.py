"""The tables of docs/models.md, from what the benchmark measured."""

from __future__ import annotations

import ast
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from marked import markdown_table

NONE = "-"
_MOST_SHOWN = 60  # bytes


@dataclass
class Row:
    """What became of one model.

    Attributes:
        name: the model's.
        what: it is.
        lines: of export code.
        failed: why there is no archive that holds, in words; "" if there is one.
        by_hand: what the user had to do beyond the two functions, in words.
        counts: modules by action.
        attempts: builds until the plan held.
        corrections: what plan's first proposal had wrong.
        externs: distributions that the server must have, besides torch and numpy.
        size: of the archive, in bytes.
        weights: of what torch.save writes of the same object, in bytes.
        pack_seconds: CPU time of the whole of pack.
        archive, torch: seconds of each load, by round.
        verified, equal: whether verify passed; whether both interpreters' answers equal the stock one's.
        mar: bytes of the .mar.
        request: the one that works, in words.
        paper: what the paper calls the model of this kind.
        exported: what TorchScript and torch.export make of it: see shared/exported.py.
    """

    name: str
    what: str
    lines: int = 0
    failed: str = ""
    by_hand: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    attempts: int = 0
    corrections: list[str] = field(default_factory=list)
    externs: list[str] = field(default_factory=list)
    size: int = 0
    weights: int = 0
    pack_seconds: float = 0.0
    archive: list[float] = field(default_factory=list)
    torch: list[float] = field(default_factory=list)
    verified: bool = False
    equal: bool = False
    mar: int = 0
    request: str = ""
    paper: str = ""
    exported: dict[str, Any] = field(default_factory=dict)

    @property
    def held(self) -> bool:
        """Whether plan's first proposal was right."""
        return not self.failed and self.attempts == 1 and not self.corrections

    @property
    def load_ratios(self) -> list[float]:
        """Archive over torch.load, for each round."""
        return [a / t for a, t in zip(self.archive, self.torch, strict=True)]


def code_lines(file: Path) -> int:
    """Lines that are code: no blank ones, comments or docstrings."""
    text = file.read_text(encoding="utf-8")
    tree = ast.parse(text)
    prose = {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    return sum(
        bool(line.strip()) and not line.strip().startswith("#") and number not in prose
        for number, line in enumerate(text.splitlines(), start=1)
    )


def recipes_table(rows: list[Row]) -> str:
    """What the paper's Figure 4 shows of its models."""
    head = [
        "model", "export code", "interned / extern / mocked", "plan held", "archive", "pack", "load",
        "times torch.load", "verified", "equal in 2 interpreters", "a request that works",
    ]  # fmt: skip
    return markdown_table(head, [[_shown(row), *_recipe_cells(row)] for row in rows])


def suite_table(rows: list[Row]) -> str:
    """The paper's models, each beside what its kind takes: as an archive, and as a graph."""
    head = ["the paper's model", "recipe", "as an archive", "TorchScript, or torch.export"]
    return markdown_table(
        head, [[row.paper, f"`{row.name}`", _as_archive(row), _as_graph(row)] for row in rows]
    )


def third_party_table(rows: list[Row]) -> str:
    """What it took to pack models that nobody wrote for this."""
    head = ["model", "what it took", "interned / extern / mocked", "the server must have", "archive",
            "equal in 2 interpreters", "a request that works"]  # fmt: skip
    return markdown_table(head, [[_shown(row), *_zoo_cells(row)] for row in rows])


def _recipe_cells(row: Row) -> list[str]:
    if row.failed:
        return [f"{row.lines} lines", NONE, row.failed, *[NONE] * 7]
    return [
        f"{row.lines} lines",
        _counts(row),
        _took(row),
        _megabytes(row.size),
        f"{row.pack_seconds:.1f} s",
        f"{statistics.median(row.archive) * 1e3:.0f} ms" if row.archive else NONE,
        f"{statistics.median(row.load_ratios):.1f}" if row.archive else NONE,
        _yes(row.verified),
        _yes(row.equal),
        row.request or NONE,
    ]


def _as_archive(row: Row) -> str:
    if row.failed:
        return row.failed
    mocked = row.counts.get("mock", 0)
    return f"{_took(row)}, nothing mocked" if not mocked else f"{_took(row)}, {mocked} mocked"


def _as_graph(row: Row) -> str:
    how, part = row.exported.get("how"), row.exported.get("part")
    reasons = row.exported.get("reasons", {})
    if how:
        named = {"script": "compiled by TorchScript", "trace": "traced by TorchScript",
                 "export": "by torch.export"}[how]  # fmt: skip
        return named + (f", {part}" if part else "")
    return "no: " + "; ".join(f"{way}: {_short(said)}" for way, said in reasons.items()) if reasons else NONE


def _short(said: str) -> str:
    """An error's first words, as code in a table."""
    text = said.partition(": ")[2].replace("`", "'").rstrip(": ")
    return f"`{text if len(text) <= 70 else f'{text[:67]}...'}`"


def _zoo_cells(row: Row) -> list[str]:
    if row.failed:
        return [row.failed, *[NONE] * 5]
    took = _took(row)
    if row.by_hand:
        took = row.by_hand + ("" if row.held else f"; {took}")
    externs = ", ".join(row.externs) or "nothing else"
    return [took, _counts(row), externs, _megabytes(row.size), _yes(row.equal), row.request or NONE]


def request_words(batches: str | None, content_type: str, body: bytes) -> str:
    """A request in a table's cell: how it becomes a call, and what it is, in full if that is short."""
    way = batches or "handler"
    kind = content_type.partition(";")[0]
    if kind == "application/octet-stream":
        saved = body.startswith(b"PK") and b"data.pkl" in body
        what = "tensors as torch.save writes them" if saved else "bytes"
        return f"{way}: {what}, {_kilobytes(body)}"
    if len(body) <= _MOST_SHOWN:
        return f"{way}: `{body.decode()}`"
    return f"{way}: {'JSON' if kind == 'application/json' else 'text'}, {_kilobytes(body)}"


def _kilobytes(body: bytes) -> str:
    return f"{len(body) / 1e3:.1f} kB"


def _took(row: Row) -> str:
    if row.held:
        return "at once"
    corrected = "; ".join(row.corrections)
    return f"{row.attempts} attempts" + (f": {corrected}" if corrected else "")


def _shown(row: Row) -> str:
    return f"**{row.name}**: {row.what}"


def _counts(row: Row) -> str:
    return " / ".join(str(row.counts.get(action, 0)) for action in ("intern", "extern", "mock"))


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.2f} MB"


def _yes(value: bool) -> str:
    return "yes" if value else "**no**"


def facts(row: Row) -> dict[str, Any]:
    """JSON-able form, for the raw numbers."""
    return {**vars(row), "held": row.held}
