"""``interpool prepare``."""

from __future__ import annotations

import os
from pathlib import Path

import click

from interpool.archiver_ext.commands.json_output import JSON, print_json


@click.command(short_help="Make private copies for C++ programs, ahead of them")
@click.option("--slots", type=click.IntRange(1, 999), default=os.cpu_count() or 1, show_default="cores")
@click.option("--import", "imports", multiple=True, metavar="NAME", help="a module that models will need")
@click.option("--output", type=click.Path(path_type=Path), help="where programs look, by default")
@click.option(
    "--bundle",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="write all that such a program needs to DIR, Python and torch included, to be moved anywhere",
)
@JSON
def prepare(
    slots: int, imports: tuple[str, ...], output: Path | None, bundle: Path | None, as_json: bool
) -> None:
    """Make the private copies that a C++ program without a Python needs, ahead of it."""
    if bundle is not None:
        from interpool.native.bundle.make import make_bundle

        if output is not None:
            raise click.UsageError("--bundle and --output are different things to make")
        made = make_bundle(bundle, slots, imports)
        if as_json:
            facts = {"bundle": str(bundle), "slots": slots, "copies": made.copies, "bytes": made.size}
            print_json({**facts, "unlicensed": [*made.unlicensed]})
            return
        size = made.size // 1_000_000
        click.echo(f"{bundle}: {made.copies} copies for {slots} interpreters, {size} MB in all")
        if made.unlicensed:
            names = ", ".join(made.unlicensed)
            click.echo(f"Not found: the licenses of {names}. Add them when you pass the bundle on.")
        return
    from interpool.native.pool.prepare import default_file
    from interpool.native.pool.prepare import prepare as make

    file = output or default_file()
    copies = make(file, slots, imports)
    if as_json:
        print_json({"file": str(file), "slots": slots, "copies": copies})
        return
    click.echo(f"{file}: {copies} copies for {slots} interpreters")
