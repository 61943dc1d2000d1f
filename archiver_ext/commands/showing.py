"""What several commands print in the same way."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from interpool.native.archive.format import Extern, ModuleRecord

# Lines that another program reads are not wrapped.
_WIDE = 1_000


def output() -> Console:
    """Standard output, wrapped for people only."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else _WIDE)


def plain(text: str) -> str:
    """Text of an archive's, as markup that shows it and does nothing else to the terminal."""
    return escape("".join(each if each.isprintable() else repr(each)[1:-1] for each in text))


def modules_table(modules: dict[str, ModuleRecord]) -> Table:
    """One line for each top-level module, action and reason; the title counts the modules."""
    grouped = Counter(
        (done["action"], name.partition(".")[0], done["reason"]) for name, done in modules.items()
    )
    total = Counter(done["action"] for done in modules.values())
    title = f"{total['intern']} interned, {total['extern']} extern, {total['mock']} mocked"
    table = Table("action", "module", "modules", "why", title=title, title_justify="left")
    order = ("intern", "mock", "extern")
    for (action, top, reason), count in sorted(
        grouped.items(), key=lambda item: (order.index(item[0][0]), item[0])
    ):
        table.add_row(action, plain(top), str(count), plain(reason))
    return table


def show_externs(console: Console, externs: list[Extern]) -> None:
    """The distributions that the server must have."""
    if not externs:
        return
    listed = ", ".join(sorted({f"{each['distribution']} {each['version']}" for each in externs}))
    console.print(f"the server must have: {plain(listed)}", highlight=False)
