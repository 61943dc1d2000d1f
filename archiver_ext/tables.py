"""What several commands show in the same way."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from rich.console import Console

    from interpool.native.archive_format import Extern, ModuleRecord


def modules_table(modules: dict[str, ModuleRecord]) -> Table:
    """One line for each top-level module, action and reason."""
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
        table.add_row(action, top, str(count), reason)
    return table


def show_externs(console: Console, externs: list[Extern]) -> None:
    """Say what must be installed where the archive is served."""
    if not externs:
        return
    listed = ", ".join(sorted({f"{each['distribution']} {each['version']}" for each in externs}))
    console.print(f"the server must have: {listed}", highlight=False)
