"""``interpool archive``: torch-model-archiver's flags, with defaults that suit hermetic archives."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.markup import escape

from interpool.archiver_ext.commands.help_text import REPEATABLE, examples
from interpool.archiver_ext.commands.json_output import JSON, print_json
from interpool.archiver_ext.commands.progress import progress
from interpool.archiver_ext.commands.server_side import ServerSide, addresses
from interpool.archiver_ext.commands.showing import (
    Example,
    curl_line,
    example_of,
    output_console,
    show_request,
)
from interpool.archiver_ext.mar.making import FORMATS, MarReport, MarRequest, make_mar
from interpool.native.torchserve import for_curl

if TYPE_CHECKING:
    from rich.console import Console

_RUNTIMES = ("python", "python3", "LSP")
_FILE = click.Path(path_type=Path)


@click.command(
    "archive",
    short_help="Wrap a hermetic archive into a .mar for TorchServe",
    epilog=examples(
        "interpool archive m.ptpkg --export-path model_store",
        "interpool archive m.ptpkg --model-name price --version 2.0 --force",
    ),
)
@click.argument("package", required=False, type=_FILE)
@click.option("--serialized-file", type=_FILE, help="the hermetic archive, in place of PACKAGE")
@click.option(
    "--model-name",
    default="",
    metavar="NAME",
    show_default="PACKAGE's name without its suffix",
    help="the model's name",
)
@click.option("-v", "--version", default=MarRequest.version, metavar="VERSION", help="the model's version")
@click.option(
    "--handler",
    metavar="FILE[:FUNCTION]",
    show_default="interpool's own, which answers from the pool",
    help="the handler",
)
@click.option(
    "--archive-format",
    type=click.Choice(FORMATS),
    default=MarRequest.archive_format,
    help="NAME.mar, stored (zip-store) or deflated (default); NAME.tar.gz (tgz); a directory (no-archive)",
)
@click.option(
    "--export-path",
    type=_FILE,
    default=MarRequest.export_path,
    show_default="the current directory",
    help="directory to write to, such as the model store",
)
@click.option(
    "--extra-files",
    multiple=True,
    metavar="FILES",
    help=f"files, wildcards or directories to put beside the package, with commas between{REPEATABLE}",
)
@click.option("--model-file", type=_FILE, help="a Python file, for a handler of your own that needs one")
@click.option(
    "-r",
    "--requirements-file",
    type=_FILE,
    help="requirements.txt, which a server with install_py_dep_per_model installs",
)
@click.option("-c", "--config-file", type=_FILE, help="the model's configuration, model-config.yaml")
@click.option(
    "--runtime", type=click.Choice(_RUNTIMES), default=MarRequest.runtime, help="the runtime in its manifest"
)
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

    The flags are torch-model-archiver's, in the same meaning. First, the archive's structure and digests are
    checked.
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
    with progress(f"wrapping {named}"):
        report = make_mar(request, server.check_config if server else None)
        example = example_of(report.output)
    if as_json:
        print_json({**report.as_dict(), "curl": curl_line(example)})
    else:
        _show(output_console(), report, example)


def _show(console: Console, report: MarReport, example: Example | None) -> None:
    option, management = for_curl(addresses()[1])
    for warning in report.warnings:
        console.print(f"[yellow]warning:[/] {escape(warning)}", soft_wrap=True)
    facts = f"{report.archive_format}, {report.size / 1e6:.2f} MB, {sum(report.seconds.values()):.1f} s"
    console.print(
        f"[green]wrapped[/] {escape(str(report.output))} ({facts}): "
        f"model {escape(report.model_name)}, version {escape(report.version)}",
        soft_wrap=True,
    )
    console.print(
        f"next, with {escape(str(report.output.parent))} as the server's --model-store:\n"
        f'  curl {option}-X POST "{management}/models?url={report.url}&initial_workers=1&synchronous=true"',
        markup=False,
        soft_wrap=True,
    )
    show_request(console, example)
