"""``interpool cache``."""

from __future__ import annotations

import contextlib
import math
import os
from dataclasses import asdict

import click

from interpool.archiver_ext.commands.help_text import examples
from interpool.archiver_ext.commands.json_output import JSON, print_json
from interpool.archiver_ext.commands.progress import progress


@click.command(
    short_help="Show the cache of private copies, or clean it",
    epilog=examples("interpool cache", "interpool cache --remove --unused-for 7"),
)
@click.option("--remove", is_flag=True, help="remove the copies that no process has used for too long")
@click.option(
    "--unused-for",
    type=click.FloatRange(min=0),
    metavar="DAYS",
    show_default="the cache's own limits",
    help="with --remove: how long that is; 0 removes all that no process uses now",
)
@JSON
def cache(remove: bool, unused_for: float | None, as_json: bool) -> None:
    """Show the cache of private copies, or remove what is not used any more.

    There is a set of copies for each Python, torch and build of interpool. A start that needs removed copies
    is slower. What a living process uses is never removed.

    Running pools keep the cache within the limits INTERPOOL_CACHE_DAYS and INTERPOOL_CACHE_GB. --remove
    applies these limits at once.
    """
    from interpool.native.provision.cache_limits import DAY_S, Limits, limits
    from interpool.native.provision.inventory import describe, inventory, rule, size
    from interpool.native.provision.store import cache_root
    from interpool.native.provision.sweeping import clean, disk_bytes

    if unused_for is not None and not remove:
        raise click.UsageError("--unused-for goes with --remove")
    if unused_for is not None and math.isnan(unused_for):
        raise click.UsageError("--unused-for takes a number of days")
    root, own = cache_root(), limits()
    with contextlib.suppress(FileNotFoundError):
        os.listdir(root)  # raises if the cache cannot be read, which must not look like an empty one
    if remove and unused_for is None and own == Limits():
        raise click.UsageError("the cache has no limits: say how long with --unused-for")
    removed: list[str] = []
    before = 0
    if remove:
        with progress(f"cleaning {root}"):
            before = disk_bytes(root)
            gone = clean(root, own if unused_for is None else Limits(unused_for * DAY_S))
        removed = [str(path.relative_to(root)) for path in gone]
    found, total = inventory(root), disk_bytes(root)
    freed = before - total if remove else 0
    if as_json:
        sets = [asdict(each) for each in found]
        bounds = {"days": own.unused_s / DAY_S, "bytes": own.size}
        kept = {name: bound if math.isfinite(bound) else None for name, bound in bounds.items()}
        report = {"cache": str(root), "bytes": total, "limits": kept, "sets": sets}
        print_json({**report, "removed": removed, "removed_bytes": freed})
        return
    click.echo(f"{root}: {size(total)}; {rule(own)}")
    for line in describe(found) if found else ():
        click.echo(line)
    if remove:
        click.echo(f"removed: {size(max(0, freed))}")
