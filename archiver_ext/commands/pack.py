"""``interpool plan`` and ``interpool pack``."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import click
from click.core import ParameterSource
from rich.console import Console
from rich.table import Table

from interpool.archiver_ext.commands.help_text import REPEATABLE, examples
from interpool.archiver_ext.commands.json_output import JSON, print_json
from interpool.archiver_ext.commands.progress import progress
from interpool.archiver_ext.commands.showing import (
    curl_line,
    data_lines,
    example_of,
    modules_table,
    output_console,
    plain,
    show_externs,
    show_request,
)
from interpool.archiver_ext.commands.tolerance import TOLERANCE
from interpool.archiver_ext.errors import PackError
from interpool.archiver_ext.packing.attempts import NotWorkingError
from interpool.archiver_ext.packing.options import PackKeywords, PackOptions, Progress
from interpool.archiver_ext.packing.pack import pack, propose
from interpool.archiver_ext.packing.plan import read_plan, refuse_no_plan, write_plan
from interpool.archiver_ext.packing.reports import PackReport, PlanReport
from interpool.archiver_ext.packing.serving_choices import Choices
from interpool.native.archive.format import Batches, Origin

_Command = TypeVar("_Command", bound=Callable[..., Any])

_FIELDS = get_type_hints(PackOptions, include_extras=True) | get_type_hints(Choices, include_extras=True)
_REPEATED = ("intern", "extern", "mock", "deny", "data")
_IN_A_PLAN = (*_REPEATED, *(each.name for each in fields(Choices)))

_FILE = click.Path(path_type=Path, dir_okay=False)


def _declared(name: str, **settings: Any) -> Callable[[_Command], _Command]:
    """Return the option for a field of PackOptions or Choices, with its texts as help.

    Args:
        name: of the field.
        settings: click's.
    """
    text, *default = _FIELDS[name].__metadata__
    text += REPEATABLE if settings.get("multiple") else ""
    settings |= {"show_default": default[0]} if default else {}
    return click.option(f"--{name.replace('_', '-')}", help=text, **settings)


def _common(command: _Command) -> _Command:
    """Add the options that both commands have."""
    options = [
        _declared("root", type=click.Path(path_type=Path, file_okay=False)),
        _declared("inputs", default=PackOptions.inputs, metavar="SPEC|FILE"),
        click.option(
            "--no-inputs", is_flag=True, help="do not run the model: there is no self-test, and fewer reasons"
        ),
        *(_declared(name, multiple=True, metavar="GLOB") for name in _REPEATED),
        _declared("batches", type=click.Choice(get_args(Batches))),
        _declared("grad", is_flag=True, default=None),
        _declared("train_mode", is_flag=True, default=None),
        click.option(
            "--no-serve-check",
            is_flag=True,
            help="do not try the example inputs as requests: for models that no request can call",
        ),
        _declared("rtol", type=TOLERANCE, default=PackOptions.rtol, metavar="NUMBER"),
        _declared("atol", type=TOLERANCE, default=PackOptions.atol, metavar="NUMBER"),
        click.option("-v", "--verbose", is_flag=True, help="show every module, data file and lazy import"),
        JSON,
    ]
    for option in reversed(options):
        command = option(command)
    return command


def _keywords(options: dict[str, Any], show_step: Progress) -> dict[str, Any]:
    """Return pack's keyword arguments for the given options of a command.

    Args:
        options: by parameter name.
        show_step: shows a step.
    """
    if options.pop("no_inputs"):
        if options["inputs"]:
            raise click.UsageError("--inputs and --no-inputs exclude each other")
        options["inputs"] = None
    serving = Choices(**{each.name: options.pop(each.name) for each in fields(Choices)})
    serve_check = not options.pop("no_serve_check")
    return {**options, "serving": serving, "serve_check": serve_check, "progress": show_step}


@click.command(
    "plan",
    short_help="Say what pack would do with a model, and why",
    epilog=examples("interpool plan mypkg.factory:build", "interpool plan mypkg.factory:build -o plan.toml"),
)
@click.argument("spec")
@click.option(
    "-o",
    "--output",
    type=_FILE,
    help="write the plan to this file, for `interpool pack --plan`; it replaces an earlier plan there",
)
@_common
def plan_command(
    spec: str,
    output: Path | None,
    verbose: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Say what pack would do with the model that SPEC names, and why; make no archive.

    The model is built, run on its example inputs, packed and loaded in a temporary place. A package that
    runs goes into the archive if it is small and pure Python. Otherwise it is taken from the server. A
    package that is imported and never runs is mocked.

    Keep the plan beside the model, change it if you like, and give it to `interpool pack --plan`. Globs of
    modules have torch.package's syntax (einops.**), and override the rules.
    """
    if output is not None:
        refuse_no_plan(output)
    with progress(f"planning {spec}") as show_step:
        try:
            report = propose(spec, PackKeywords(**_keywords(options, show_step)))
        except NotWorkingError as error:
            if output is None:
                raise
            write_plan(error.plan, output, not_working=error.message)
            raise PackError(_beside(error.message, output), error.user_traceback) from None
    if output is not None:
        write_plan(report.plan, output)
    following = _next_command(spec, output)
    if as_json:
        print_json({**report.as_dict(), "next": following})
        return
    console = output_console()
    _show_report(console, report, verbose)
    console.print(f"next: {following}", markup=False, soft_wrap=True)


def _next_command(spec: str, plan_file: Path | None) -> str:
    """Return ``interpool pack`` with the given options, except those that the plan contains."""
    context = click.get_current_context()
    left_out = {"output", "verbose", "as_json", *(_IN_A_PLAN if plan_file is not None else ())}
    words = ["interpool", "pack", spec]
    for option in context.command.params:
        name = str(option.name)
        given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if not isinstance(option, click.Option) or not given or name in left_out:
            continue
        value = context.params[name]
        for each in value if option.multiple else [value]:
            words += [option.opts[0]] if option.is_flag else [option.opts[0], str(each)]
    words += ["--plan", str(plan_file)] if plan_file is not None else []
    return shlex.join([*words, "-o", "model.ptpkg"])


def _beside(message: str, output: Path) -> str:
    return (
        f"{message}\n  {output} contains the plan so far, marked as NOT WORKING: change it, and give "
        "it to interpool pack --plan"
    )


@click.command(
    "pack",
    short_help="Pack a model into a hermetic archive",
    epilog=examples(
        "interpool pack mypkg.factory:build -o m.ptpkg",
        "interpool pack mypkg.factory:build --plan plan.toml -o m.ptpkg",
    ),
)
@click.argument("spec")
@click.option("-o", "--output", required=True, type=_FILE, help="the archive to write")
@click.option("--plan", "plan_file", type=_FILE, help="a plan of `interpool plan`, to follow as it is")
@_common
def pack_command(
    spec: str,
    output: Path,
    plan_file: Path | None,
    verbose: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Pack the model that SPEC names (mypkg.factory:build) into a hermetic archive.

    A function is called without arguments. Any other object is packed itself. Example inputs come from
    --inputs, or from a function `example_inputs` beside SPEC. They and the answer to them go into the
    archive: as a self-test, and as a request over HTTP that was seen to work.

    Globs of modules have torch.package's syntax (einops.**), and override the plan and the rules. Of several
    that match a module, the first of deny, mock, extern, intern wins.
    """
    with progress(f"packing {spec}") as show_step:
        plan = read_plan(plan_file) if plan_file is not None else None
        report = pack(spec, output, plan=plan, **_keywords(options, show_step))
    example = example_of(report.output) if report.request is not None else None
    if as_json:
        print_json({**report.as_dict(), "curl": curl_line(example)})
        return
    console = output_console()
    _show_report(console, report, verbose)
    alone = "" if report.kind == "handler" else ", and each request is answered alone"
    without = f"(no example inputs: no self-test{alone})"
    tried = "and answered its self-test" if report.inputs is not None else without
    written = sum(report.seconds.get(step, 0.0) for step in ("export", "digest"))
    console.print(
        f"[green]packed[/] {plain(str(report.output))} ({report.kind}, {report.size / 1e6:.2f} MB; "
        f"{written:.1f} s to write it, {sum(report.seconds.values()) - written:.1f} s to build, run, scan "
        f"and try it); it was loaded in a fresh process {tried}",
        soft_wrap=True,
    )
    show_request(console, example)


def _show_report(console: Console, report: PlanReport | PackReport, verbose: bool) -> None:
    """Show what the user must check first; the rest is counted, unless ``verbose``."""
    for warning in report.warnings:
        console.print(f"[yellow]warning:[/] {_lines(warning)}")
    for correction in report.corrections:
        console.print(f"[yellow]corrected:[/] {plain(correction)}")
    if report.plan.proposals:
        table = Table("action", "package", "why, and the line that asked for it", title="to decide about")
        for each in report.plan.proposals:
            table.add_row(each.action, each.glob, _lines(f"{each.reason}\n{each.line}".strip()))
        console.print(table)
    for each in report.plan.proposals:
        if each.action == "mock" and each.origin is not Origin.USER:
            console.print(
                f"[yellow]mocked:[/] {plain(each.glob)}: if requests may need it, add an example input that "
                f"does, or --extern '{plain(each.glob)}'"
            )
    console.print(modules_table(report.modules, verbose))
    show_externs(console, report.externs)
    for line in data_lines(report.plan.data, verbose):
        console.print(line)
    if verbose:
        for lazy in report.lazy:
            console.print(f"lazy import: {_lines(lazy)}")
    elif report.lazy:
        count = f"{len(report.lazy)} lazy import{'s' * (len(report.lazy) > 1)}"
        console.print(f"{count} that did not run: interpool plan -v {plain(report.spec)}")


def _lines(text: str) -> str:
    return "\n".join(map(plain, text.splitlines()))
