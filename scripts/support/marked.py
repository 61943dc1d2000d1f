"""Parts of pages that scripts write, between two markers, and their tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

Tables = dict[str, Callable[[], str]]
"""The parts of a page that are written: by the name in their markers, what gives their text."""
BEGIN, END = "<!-- {}: begin ({}) -->", "<!-- {}: end -->"


def markdown_table(head: str, rows: list[list[str]]) -> str:
    """A table, with a head such as ``name | value``; what would end a cell of a row is escaped."""
    names = head.split(" | ")
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |"
        for line in lines
    )


def filled(page: str, name: str, text: str, by: str) -> str:
    """The page with another text between the markers of this name.

    Args:
        page: the page's text.
        name: in the markers.
        text: what is to stand there.
        by: the command that writes it, in the first marker.

    Raises:
        ValueError: there are no such markers.
    """
    begin, end = BEGIN.format(name, by), END.format(name)
    before, marked, rest = page.partition(begin)
    _, ended, after = rest.partition(end)
    if not (marked and ended):
        raise ValueError(f"there is no {begin} … {end}")
    return f"{before}{begin}\n{text.rstrip()}\n{end}{after}"


def with_tables(page: Path, tables: Tables, by: str) -> str:
    """A page's text with all its tables made anew.

    Raises:
        ValueError: one has no place on the page.
    """
    text = page.read_text(encoding="utf-8")
    for name, table in tables.items():
        text = filled(text, name, table(), by)
    return text


def put(page: Path, name: str, text: str, by: str) -> None:
    """Write a page anew with another text between the markers of this name.

    Raises:
        ValueError: there are no such markers.
    """
    try:
        page.write_text(filled(page.read_text(encoding="utf-8"), name, text, by), encoding="utf-8")
    except ValueError as error:
        raise ValueError(f"{page}: {error}") from None
