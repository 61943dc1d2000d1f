"""The archiver's subcommands of ``interpool``.

InterpoolError goes up to the command group, which prints it.
"""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.console import Console

from interpool.archiver_ext.archive_command import archive_command
from interpool.archiver_ext.inspect_command import inspect_command
from interpool.archiver_ext.packing import PackReport, pack
from interpool.archiver_ext.showing import modules_table, show_externs
from interpool.archiver_ext.why_command import why_command

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


commands: list[click.Command] = [pack_command, inspect_command, why_command, archive_command]


def _show_report(console: Console, report: PackReport) -> None:
    console.print(modules_table(report.modules))
    show_externs(console, report.externs)
    for warning in report.warnings:
        console.print(f"[yellow]warning:[/] {warning}", highlight=False)
    total = sum(report.seconds.values())
    console.print(
        f"[green]packed[/] {report.output} ({report.kind}, {report.size / 1e6:.2f} MB, "
        f"{total:.1f} s); a fresh process has loaded it"
    )
