"""``interpool prepare``."""

from __future__ import annotations

import os
from pathlib import Path

import click

from interpool.archiver_ext.commands.help_text import REPEATABLE, examples
from interpool.archiver_ext.commands.json_output import JSON, print_json
from interpool.archiver_ext.commands.progress import progress


@click.command(
    short_help="Make private copies for C++ programs, ahead of them",
    epilog=examples(
        "interpool prepare --slots 4 --import numpy", "interpool prepare --bundle out/bundle --slots 4"
    ),
)
@click.option(
    "--slots",
    type=click.IntRange(1, 999),
    default=os.cpu_count() or 1,
    metavar="N",
    show_default="cores",
    help="the most interpreters that a program may start",
)
@click.option(
    "--import", "imports", multiple=True, metavar="NAME", help=f"a module that models will need{REPEATABLE}"
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    show_default="the file that programs read",
    help="the file to write",
)
@click.option(
    "--bundle",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="write all that a program needs to DIR, with Python and torch; it works on other machines, too",
)
@JSON
def prepare(
    slots: int, imports: tuple[str, ...], output: Path | None, bundle: Path | None, as_json: bool
) -> None:
    """Make the private copies that a C++ program without a Python needs, ahead of its start.

    It writes a file that names the copies. Programs read the file that INTERPOOL_PREPARED names, or else one
    in the cache. `interpool cmake-dir` helps to build such a program.
    """
    interpreters = f"{slots} interpreter{'s' * (slots > 1)}"
    if bundle is not None:
        from interpool.native.bundle.make import make_bundle

        if output is not None:
            raise click.UsageError("--bundle and --output are different things to make")
        with progress(f"making the bundle {bundle} for {interpreters}"):
            made = make_bundle(bundle, slots, imports)
        if as_json:
            facts = {"bundle": str(bundle), "slots": slots, "copies": made.copies, "bytes": made.size}
            print_json({**facts, "unlicensed": [*made.unlicensed]})
            return
        size = made.size // 1_000_000
        click.echo(f"{bundle}: {made.copies} copies for {interpreters}, {size} MB in all")
        if made.unlicensed:
            names = ", ".join(made.unlicensed)
            click.echo(f"Not found: the licenses of {names}. Add them when you pass the bundle on.")
        return
    from interpool.native.pool.prepare import default_file
    from interpool.native.pool.prepare import prepare as make

    file = output or default_file()
    with progress(f"making copies for {interpreters}"):
        copies = make(file, slots, imports)
    if as_json:
        print_json({"file": str(file), "slots": slots, "copies": copies})
        return
    click.echo(f"{file}: {copies} copies for {interpreters}")
