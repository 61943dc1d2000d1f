"""The archiver's subcommands of ``interpool``.

InterpoolError goes up to the command group, which prints it.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table

from interpool.archiver_ext.inspection import Inspection, inspect_archive
from interpool.archiver_ext.packing import PackReport, pack
from interpool.archiver_ext.verify_command import sign_command, verify_command

if TYPE_CHECKING:
    from interpool.native.archive_format import Extern, ModuleRecord

_GLOB_HELP = "modules to {}, in torch.package's syntax (einops.**); may be repeated"


def _glob_option(name: str, words: str) -> click.Option:
    return click.Option([f"--{name}"], multiple=True, metavar="GLOB", help=_GLOB_HELP.format(words))


@click.command("pack")
@click.argument("spec")
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="the archive to write",
)
@click.option(
    "--root",
    type=click.Path(path_type=Path, file_okay=False),
    help="your project's directory; default: the current one",
)
@click.option("--json", "as_json", is_flag=True, help="print the report as JSON")
def pack_command(
    spec: str,
    output: Path,
    root: Path | None,
    as_json: bool,
    intern: tuple[str, ...],
    extern: tuple[str, ...],
    mock: tuple[str, ...],
    deny: tuple[str, ...],
) -> None:
    """Pack the model that SPEC names (mypkg.factory:build) into a hermetic archive.

    A function is called without arguments, any other object is packed itself. Of several
    globs that match a module, the first of deny, mock, extern, intern wins.
    """
    console = Console(stderr=as_json)
    with console.status(f"packing {spec}"):
        report = pack(spec, output, root=root, intern=intern, extern=extern, mock=mock, deny=deny)
    if as_json:
        click.echo(json.dumps(report.as_dict()))
    else:
        _show_report(console, report)


pack_command.params += [
    _glob_option("intern", "put into the archive"),
    _glob_option("extern", "take from the server"),
    _glob_option("mock", "replace by an empty stand-in"),
    _glob_option("deny", "refuse"),
]


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


commands: list[click.Command] = [pack_command, inspect_command, verify_command, sign_command]


def _show_report(console: Console, report: PackReport) -> None:
    console.print(_modules_table(report.modules))
    _show_externs(console, report.externs)
    for warning in report.warnings:
        console.print(f"[yellow]warning:[/] {warning}", highlight=False)
    total = sum(report.seconds.values())
    console.print(
        f"[green]packed[/] {report.output} ({report.kind}, {report.size / 1e6:.2f} MB, "
        f"{total:.1f} s); a fresh process has loaded it"
    )


def _modules_table(modules: dict[str, ModuleRecord]) -> Table:
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


def _show_externs(console: Console, externs: list[Extern]) -> None:
    if not externs:
        return
    listed = ", ".join(sorted({f"{each['distribution']} {each['version']}" for each in externs}))
    console.print(f"the server must have: {listed}", highlight=False)


def _show_inspection(console: Console, found: Inspection) -> None:
    made = found.manifest["made_with"]
    entry = found.manifest["entry"]
    console.print(
        f"{found.archive}: {entry['kind']} in {entry['package']}/{entry['resource']}, "
        f"{found.size / 1e6:.2f} MB, made with Python {made['python']}, torch {made['torch']}, "
        f"interpool {made['interpool']}",
        highlight=False,
    )
    console.print(_modules_table(found.manifest["modules"]))
    _show_externs(console, found.manifest["externs"])
    sizes = Table("member", "bytes", title="largest members", title_justify="left")
    for name, size in found.largest(10):
        sizes.add_row(name, f"{size:,}")
    console.print(sizes)
