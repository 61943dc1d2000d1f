"""The archiver's subcommands of ``interpool``.

InterpoolError goes up to the command group, which prints it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table

from interpool.archiver_ext.inspection import Inspection, inspect_archive
from interpool.archiver_ext.pack_command import pack_command, plan_command
from interpool.archiver_ext.tables import modules_table, show_externs

if TYPE_CHECKING:
    pass


@click.command("inspect")
@click.argument("archive", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="print the facts as JSON")
def inspect_command(archive: Path, as_json: bool) -> None:
    """Say what is in an archive: m.ptpkg, or the m.mar around it. Runs none of its code."""
    found = inspect_archive(archive)
    if as_json:
        click.echo(json.dumps(found.as_dict()))
    else:
        _show_inspection(Console(), found)


commands: list[click.Command] = [plan_command, pack_command, inspect_command]


def _show_inspection(console: Console, found: Inspection) -> None:
    made = found.manifest["made_with"]
    entry = found.manifest["entry"]
    console.print(
        f"{found.archive}: {entry['kind']} in {entry['package']}/{entry['resource']}, "
        f"{found.size / 1e6:.2f} MB, made with Python {made['python']}, torch {made['torch']}, "
        f"interpool {made['interpool']}",
        highlight=False,
    )
    console.print(modules_table(found.manifest["modules"]))
    show_externs(console, found.manifest["externs"])
    sizes = Table("member", "bytes", title="largest members", title_justify="left")
    for name, size in found.largest(10):
        sizes.add_row(name, f"{size:,}")
    console.print(sizes)
