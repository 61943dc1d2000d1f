"""``interpool doctor``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import click

from interpool.archiver_ext.commands.help_text import examples
from interpool.archiver_ext.commands.json_output import JSON, print_json
from interpool.archiver_ext.commands.progress import announce
from interpool.handler.commands.common import OTHER
from interpool.handler.frontend import shim

if TYPE_CHECKING:
    from interpool.native.diagnostics.doctor import Check


def _settings_check() -> Check:
    """Whether a server with this environment would start."""
    from interpool.handler.config import HostSettings
    from interpool.handler.errors import SettingsError
    from interpool.native.diagnostics.doctor import Check

    try:
        HostSettings.of_environment()
    except SettingsError as error:
        return Check("settings", False, str(error), "correct the variable, or unset it")
    given = sorted(name for name in os.environ if name in shim.SETTINGS)
    return Check("settings", True, f"the environment sets {', '.join(given) or 'none'}")


@click.command(
    short_help="Check this machine, a library or an archive",
    epilog=examples(
        "interpool doctor",
        "interpool doctor --imports numpy my_extension",
        "interpool doctor --run trial:work",
        "interpool doctor --mar m.mar",
    ),
)
@click.option("--imports", is_flag=True, help="try whether private interpreters can import these modules")
@click.option("--run", is_flag=True, help="try whether these functions compute in private interpreters")
@click.option(
    "--mar",
    type=click.Path(exists=True, path_type=Path),
    metavar="ARCHIVE",
    help="try whether a pool can serve this archive",
)
@click.argument("names", nargs=-1, metavar="[--imports MODULE... | --run MODULE:FUNCTION...]")
@JSON
def doctor(imports: bool, run: bool, mar: Path | None, names: tuple[str, ...], as_json: bool) -> None:
    """Check whether interpool works on this machine; each line says how to fix what is wrong.

    FAIL marks what does not work; the exit status is 1 then. WARN marks what works, and says what to know
    about it.

    --imports imports each module into two private interpreters at once. It does so in a process of its own,
    so that a crash is a line of the answer. Many libraries fail only when they are used: try these with
    --run.

    --run calls functions of yours, without arguments, again and again: in two private interpreters and in the
    host program at once. It compares their answers with an ordinary Python's.

    --mar tries whether a pool can serve an archive: a .mar, a .tar.gz, a directory or a .ptpkg. It does what
    a server with this environment does when the archive is registered. An archive that was made without
    interpool is tried as with INTERPOOL_ORDINARY_ARCHIVES=pool.
    """
    from interpool.handler.frontend.serving_checks import checks as serving_checks
    from interpool.handler.host.mar_trial import checks as mar_checks
    from interpool.native.diagnostics import run_trial
    from interpool.native.diagnostics.doctor import checks as native_checks
    from interpool.native.diagnostics.import_trial import checks as import_checks

    if imports + run + (mar is not None) > 1:
        raise click.UsageError("--imports, --run and --mar are different questions")
    if names and not (imports or run):
        raise click.UsageError(f"what is {names[0]!r}? Give --imports for modules, --run for MODULE:FUNCTION")
    if (imports or run) and not names:
        raise click.UsageError("--imports needs the names of modules, --run those of functions")
    if run and (bad := [name for name in names if not all(name.partition(":"))]):
        raise click.UsageError(f"--run takes MODULE:FUNCTION, and {bad[0]!r} is no such thing")
    checks: Iterable[Check]
    announce(f"checking {mar or ', '.join(names) or 'this machine'}")
    if imports:
        checks = import_checks(names)
    elif run:
        checks = run_trial.checks(names)
    elif mar:
        checks = mar_checks(mar)
    else:
        checks = chain(native_checks(), serving_checks(), (_settings_check(),))
    made = []
    for check in checks:
        made.append(check)
        if as_json:
            continue
        click.echo(f"{check.mark:4}  {check.name}: {check.detail}")
        if check.hint:
            click.echo(f"      fix: {check.hint}")
    ok = all(check.ok for check in made)
    if as_json:
        answers = [
            {"name": check.name, "answer": check.mark, "detail": check.detail, "fix": check.hint}
            for check in made
        ]
        print_json({"ok": ok, "checks": answers})
    sys.exit(0 if ok else OTHER)
