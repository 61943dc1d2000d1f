"""``interpool archive``: torch-model-archiver's flags, with defaults that suit hermetic archives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape

from interpool.archiver_ext.commands.json_output import JSON, print_json
from interpool.archiver_ext.commands.server_side import ServerSide, addresses
from interpool.archiver_ext.commands.showing import show_request
from interpool.archiver_ext.mar.making import FORMATS, MarReport, MarRequest, make_mar

_RUNTIMES = ("python", "python3", "LSP")
_FILE = click.Path(path_type=Path)


@click.command("archive", short_help="Wrap a hermetic archive into a .mar for TorchServe")
@click.argument("package", required=False, type=_FILE)
@click.option("--serialized-file", type=_FILE, help="the hermetic archive, if it is not named by itself")
@click.option("--model-name", default="", help="default: the archive's file name without its suffix")
@click.option("-v", "--version", default=MarRequest.version, show_default=True, help="the model's version")
@click.option(
    "--handler",
    help="handler file, or file:function; default: interpool's own, which answers from the pool",
)
@click.option(
    "--archive-format",
    type=click.Choice(FORMATS),
    default=MarRequest.archive_format,
    show_default=True,
    help="zip-store and default: NAME.mar, stored or deflated; tgz: NAME.tar.gz; no-archive: a directory",
)
@click.option(
    "--export-path",
    type=_FILE,
    default=MarRequest.export_path,
    help="directory to write to, such as the model store; default: the current one",
)
@click.option(
    "--extra-files",
    multiple=True,
    metavar="FILES",
    help="files, wildcards or directories to put beside the package, with commas between; may be repeated",
)
@click.option("--model-file", type=_FILE, help="a Python file, for handlers of your own that want one")
@click.option("-r", "--requirements-file", type=_FILE, help="for servers with install_py_dep_per_model")
@click.option("-c", "--config-file", type=_FILE, help="model-config.yaml")
@click.option("--runtime", type=click.Choice(_RUNTIMES), default=MarRequest.runtime, show_default=True)
@click.option("-f", "--force", is_flag=True, help="replace what is there")
@JSON
def archive_command(
    package: Path | None,
    serialized_file: Path | None,
    handler: str | None,
    extra_files: tuple[str, ...],
    as_json: bool,
    **options: Any,
) -> None:
    """Wrap the hermetic archive PACKAGE (m.ptpkg) into a .mar for TorchServe.

    Takes torch-model-archiver's flags, in the same meaning. The archive's structure and
    digests are checked first.
    """
    if (package is None) == (serialized_file is None):
        raise click.UsageError("give the archive, or --serialized-file, and not both")
    named = package or serialized_file
    assert named is not None
    server = click.get_current_context().find_object(ServerSide)
    handler = handler or (server.handler if server else None)
    if handler is None:
        raise click.UsageError("give --handler")
    request = MarRequest(
        package=named,
        handler=handler,
        extra_files=tuple(each.strip() for given in extra_files for each in given.split(",") if each.strip()),
        **options,
    )
    console = Console(stderr=as_json, highlight=False, soft_wrap=True)
    with console.status(f"wrapping {named}"):
        report = make_mar(request, server.check_config if server else None)
    if as_json:
        print_json(report.as_dict())
    else:
        _show(console, report)


def _show(console: Console, report: MarReport) -> None:
    inference, management = addresses()
    for warning in report.warnings:
        console.print(f"[yellow]warning:[/] {escape(warning)}")
    facts = f"{report.archive_format}, {report.size / 1e6:.2f} MB, {sum(report.seconds.values()):.1f} s"
    console.print(
        f"[green]wrapped[/] {escape(str(report.output))} ({facts}): "
        f"model {escape(report.model_name)}, version {escape(report.version)}"
    )
    console.print(
        f"next, with {escape(str(report.output.parent))} as the server's --model-store:\n"
        f'  curl -X POST "{management}/models?url={report.url}&initial_workers=1&synchronous=true"',
        markup=False,
    )
    show_request(console, report.output, report.model_name, inference)
