"""The ``interpool`` command: each layer's subcommands in one place."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from interpool.handler import interpool_handler
from interpool.handler.frontend import shim
from interpool.handler.torchserve import HOME_VARIABLE, running_addresses, running_frontend
from interpool.native.errors import ArchiveError, InterpoolError
from interpool.native.upstream.requirements import pip_install

if TYPE_CHECKING:
    from interpool.native.diagnostics.doctor import Check
METRICS_ADDRESS = "INTERPOOL_METRICS_ADDRESS"
START_AHEAD = "INTERPOOL_START_AHEAD"

# What the torchserve command does.
_START = "from ts.model_server import start; sys.exit(start())"


class Commands(click.Group):
    """Imports the archiver's subcommands, and what they need, only when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, sorted."""
        return sorted({*super().list_commands(ctx), *self._archiver()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The subcommand of that name."""
        own = super().get_command(ctx, cmd_name)
        if own is None:
            ctx.obj = _server_side()
        return own or self._archiver().get(cmd_name)

    def invoke(self, ctx: click.Context) -> Any:
        """Run it; an error of interpool's is a message and an exit status, not a traceback."""
        try:
            return super().invoke(ctx)
        except InterpoolError as error:
            _fail(str(error), exit_status(error))

    @staticmethod
    def _archiver() -> dict[str, click.Command]:
        from interpool.archiver_ext.commands.subcommands import commands

        return {str(command.name): command for command in commands}


OTHER, REFUSED, NOT_PACKED, NOT_SERVED = 1, 3, 4, 5

# 2 is click's own.
EXIT_STATUS = """\b
Exit status:
  0  done
  1  something else went wrong, or a check of `doctor` failed
  2  the command line makes no sense
  3  the archive is refused: damaged, unsigned, not what its manifest says, ...
  4  what was asked for cannot be packed, or wrapped
  5  the serving side: no Java, no overlay, bad settings, ...
"""


CHECK_STATUS = """\b
Exit status of --check, for probes:
  0  ready: every worker is connected, and an interpreter can answer
  1  not ready, for the reasons that are printed
  5  no pool serves a model of that name
"""


def exit_status(error: InterpoolError) -> int:
    """The exit status that goes with an error; the one place where it is decided."""
    from interpool.archiver_ext.errors import PackError
    from interpool.handler.errors import ServeError

    table = ((ArchiveError, REFUSED), (PackError, NOT_PACKED), (ServeError, NOT_SERVED))
    return next((status for kind, status in table if isinstance(error, kind)), OTHER)


def _fail(message: str, status: int) -> NoReturn:
    click.echo(f"interpool: {message}", err=True)
    sys.exit(status)


def _handler_file() -> Path:
    return Path(str(interpool_handler.__file__)).resolve()


def _server_side() -> object:
    """What the archiver, a layer below, asks its context for."""
    from interpool.archiver_ext.commands.server_side import ServerSide

    def check_config(file: Path) -> None:
        from interpool.handler.config import ModelSettings

        ModelSettings.of_file(file)

    return ServerSide(str(_handler_file()), check_config, running_addresses)


@click.group(cls=Commands, epilog=EXIT_STATUS)
@click.version_option(package_name="interpool")
def main() -> None:
    """Serve ordinary PyTorch models from one process of many private interpreters."""


@main.command(
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    add_help_option=False,
)
@click.pass_context
def serve(ctx: click.Context) -> None:
    """Run torchserve with the overlay; takes torchserve's own flags.

    `interpool serve --foreground --model-store DIR` serves until it is interrupted; without
    --foreground the server goes on in the background, and `interpool serve --stop` stops it.
    """
    from interpool.handler.config import HostSettings
    from interpool.handler.frontend.doctor import java_hint, java_path

    asked = set(ctx.args)
    if asked.isdisjoint({"--stop", "--version", "-v", "--help", "-h"}):
        if java_path() is None:
            _fail(
                "TorchServe needs Java, and there is none "
                f"{'in JAVA_HOME' if os.environ.get('JAVA_HOME') else 'on PATH'}; {java_hint()}",
                NOT_SERVED,
            )
        if importlib.util.find_spec("yaml") is None:
            _fail("TorchServe's workers need PyYAML: pip install PyYAML", NOT_SERVED)
        # What each worker would need, and TorchServe would only say that it failed to start.
        _require_runtime_directory()
        HostSettings.of_environment()
        if "--start" not in asked:
            ctx.args.insert(0, "--start")
    beside = os.path.join(os.path.dirname(sys.executable), "torchserve")
    program = beside if os.access(beside, os.X_OK) else shutil.which("torchserve")
    if program is None:
        _fail(f"the torchserve command is missing: {pip_install('torchserve')}", NOT_SERVED)
    if "--start" in ctx.args:
        from interpool.handler.frontend.leftovers import remove_leftovers, temporary_directory
        from interpool.handler.frontend.server_home import make_server_home

        remove_leftovers(temporary_directory())
        if address := os.environ.get(METRICS_ADDRESS):
            _start_exporter(address, foreground="--foreground" in asked)
        _start_host_ahead(foreground="--foreground" in asked)
        home, held = make_server_home(temporary_directory())  # when nothing is left that refuses to start
        os.environ[HOME_VARIABLE] = str(home)
        os.dup2(held, 0)  # it becomes the frontend's, which holds its home by it
    sys.stdout.flush()
    if "INTERPOOL_SIGNATURE_KEYS" in os.environ and "--start" in ctx.args:
        # See the overlay: TorchServe takes its workers' Python from who starts it, or from PATH.
        os.environ["PATH"] = os.pathsep.join([str(home / "bin"), os.environ.get("PATH", os.defpath)])
        start = f"import sys; sys.executable = {str(home / 'bin' / 'python')!r}; {_START}"
        os.execv(sys.executable, [sys.executable, "-P", "-c", start, *ctx.args])
    os.execv(program, [program, *ctx.args])


def _require_runtime_directory() -> None:
    from interpool.handler.frontend.doctor import runtime_directory

    check = runtime_directory()
    if not check.ok:
        _fail(f"{check.detail}: no worker would find a pool host\n  What to do: {check.hint}", NOT_SERVED)


def _start_host_ahead(foreground: bool) -> None:
    """Have the pool's host started with the server that this process starts."""
    wish = os.environ.get(START_AHEAD) or "1"
    if wish not in ("0", "1"):
        _fail(f"{START_AHEAD} must be 0 or 1, not {wish!r}", NOT_SERVED)
    if wish == "0" or running_frontend() is not None:
        return
    said = None if foreground else subprocess.DEVNULL
    program = [sys.executable, "-P", "-m", "interpool.handler.frontend.ahead"]
    # Not a child of what this process becomes, which would not wait for its end.
    subprocess.run(
        ["/bin/sh", "-c", '"$@" &', "sh", *program, f"--launcher={os.getpid()}"],
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=said,
        stderr=said,
        start_new_session=True,
    )


def _start_exporter(address: str, foreground: bool) -> None:
    """Beside what this process becomes; it ends with that, or with the TorchServe left behind."""
    from interpool.handler.host.exporter import listen_beside_others, url_of

    listener = listen_beside_others(address)
    if listener is None:
        click.echo(f"interpool: another server's exporter answers at {address}; this one starts none")
        return
    with listener:
        descriptor = listener.fileno()
        program = [sys.executable, "-P", "-m", "interpool.handler.host.exporter"]
        said = None if foreground else subprocess.DEVNULL
        subprocess.Popen(
            [*program, f"--socket={descriptor}", f"--beside={os.getpid()}"],
            pass_fds=[descriptor],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
        click.echo(f"interpool: the pools' metrics are at {url_of(listener)}")


@main.command()
@click.option(
    "--listen",
    "address",
    default="127.0.0.1:9191",
    envvar=METRICS_ADDRESS,
    show_default=True,
    show_envvar=True,
    metavar="HOST:PORT",
    help="where Prometheus asks; without HOST, this machine only",
)
def exporter(address: str) -> None:
    """Serve the metrics of all live pools of this user to Prometheus, until interrupted.

    `interpool serve` does so by itself where INTERPOOL_METRICS_ADDRESS is set.
    """
    from interpool.handler.host.exporter import listen, serve_metrics, url_of

    with listen(address) as listener:
        click.echo(f"the pools' metrics are at {url_of(listener)}")
        with contextlib.suppress(KeyboardInterrupt):
            serve_metrics(listener, until=lambda: False)


@main.command()
def home() -> None:
    """Print the overlay's path, for TS_MODEL_SERVER_HOME."""
    from interpool.handler.frontend.overlay import overlay

    click.echo(overlay())


@main.command()
def handler() -> None:
    """Print the handler file's path, for torch-model-archiver --handler."""
    click.echo(_handler_file())


@main.command(epilog=CHECK_STATUS)
@click.option("--json", "as_json", is_flag=True, help="print the hosts' own answers")
@click.option("--stacks", is_flag=True, help="show every interpreter's Python stacks, too")
@click.option("--watch", is_flag=True, help="show it again every second, until interrupted")
@click.option("--times", type=click.IntRange(min=1), help="with --watch: this often, instead of for ever")
@click.option("--check", metavar="MODEL", help="say whether MODEL, or MODEL/VERSION, is ready; *: all")
@click.option(
    "--patience",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="with --check: how long a call may wait for an interpreter",
)
def status(
    as_json: bool, stacks: bool, watch: bool, times: int | None, check: str | None, patience: float
) -> None:
    """Show the live pools: interpreters, models, workers, memory."""
    from interpool.handler.host.status import describe_pool, unanswered

    if as_json + stacks + watch + (check is not None) > 1 and not (as_json and stacks):
        raise click.UsageError("only --json and --stacks go together")
    try:
        nobody = f"no pool host is running (looked in {shim.runtime_base()})"
    except shim.Refused:
        _require_runtime_directory()
        raise
    if check is not None:
        _check(check, *_pools(), patience, nobody)
        return
    if watch:
        from interpool.handler.host.status import ask_hosts
        from interpool.handler.host.watch import watch as show

        show(ask_hosts, nobody, times=times)
        return
    pools, silent = _pools(stacks)
    if as_json:
        click.echo(json.dumps(pools, indent=2))
    elif not pools and not silent:
        click.echo(nobody)
    for pool in [] if as_json else pools:
        click.echo(describe_pool(pool))
    if silent:
        _fail(unanswered(silent), OTHER)


def _pools(stacks: bool = False) -> tuple[list[dict[str, Any]], list[str]]:
    """The live pools, and which hosts do not answer; without any, the runtime directory may be why."""
    from interpool.handler.host.status import ask_hosts

    pools: list[dict[str, Any]] = []
    silent: list[str] = []
    with contextlib.suppress(PermissionError):  # another user's directory
        pools, silent = ask_hosts(stacks)
    if not pools:
        _require_runtime_directory()
    return pools, silent


def _check(name: str, pools: list[dict[str, Any]], silent: list[str], patience_s: float, nobody: str) -> None:
    """Say whether a model is ready in every pool that serves it, and exit so."""
    from interpool.handler.host.model_view import models_of, why_not_ready
    from interpool.handler.host.status import unanswered

    found = [(pool, view) for pool in pools for view in models_of(pool) if view.is_called(name)]
    registered = [(pool, view) for pool, view in found if view.registered]
    if silent and not registered:
        _fail(unanswered(silent), OTHER)
    if not registered:
        why = "".join(f"; it could not be loaded: {view.reason}" for _, view in found if view.reason)
        what = "any model" if name == "*" else f"a model {name!r}"
        _fail(f"no pool serves {what}{why}" if pools else nobody, NOT_SERVED)
    failed = False
    for pool, view in registered:
        reasons = why_not_ready(pool, view, patience_s)
        failed = failed or bool(reasons)
        said = "not ready: " + "; ".join(reasons) if reasons else "ready"
        click.echo(f"{view.name}/{view.version} in pool {pool['pool']!r}: {said}")
    if failed:
        sys.exit(OTHER)


@main.command()
@click.option("--slots", type=click.IntRange(1, 999), default=os.cpu_count() or 1, show_default="cores")
@click.option("--import", "imports", multiple=True, metavar="NAME", help="a module that models will need")
@click.option("--output", type=click.Path(path_type=Path), help="where programs look, by default")
@click.option(
    "--bundle",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="write all that such a program needs to DIR, Python and torch included, to be moved anywhere",
)
def prepare(slots: int, imports: tuple[str, ...], output: Path | None, bundle: Path | None) -> None:
    """Make the private copies that a C++ program without a Python needs, ahead of it."""
    if bundle is not None:
        from interpool.native.bundle.make import make_bundle

        if output is not None:
            raise click.UsageError("--bundle and --output are different things to make")
        made = make_bundle(bundle, slots, imports)
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
    click.echo(f"{file}: {copies} copies for {slots} interpreters")


@main.command()
@click.option("--remove", is_flag=True, help="remove now what no process has used for so long")
@click.option(
    "--unused-for",
    type=click.FloatRange(min=0),
    metavar="DAYS",
    help="with --remove: 0 is all that no process uses now  [default: by the cache's own limits]",
)
@click.option("--json", "as_json", is_flag=True, help="print one JSON object")
def cache(remove: bool, unused_for: float | None, as_json: bool) -> None:
    """Show the cache of private copies, or remove what is not used any more.

    There is a set of copies for each Python, torch and build of interpool. What is removed costs a slower
    start where it is needed again. What a living process uses is never removed. The cache is kept within
    the limits INTERPOOL_CACHE_DAYS and INTERPOOL_CACHE_GB, which is what --remove does at once.
    """
    from interpool.native.provision.inventory import describe, inventory, rule, size
    from interpool.native.provision.limits import DAY_S, Limits, limits
    from interpool.native.provision.store import cache_root
    from interpool.native.provision.sweeping import clean, disk_bytes

    if unused_for is not None and not remove:
        raise click.UsageError("--unused-for goes with --remove")
    root, own = cache_root(), limits()
    removed: list[str] = []
    before = 0
    if remove:
        if unused_for is None and own == Limits():
            raise click.UsageError("the cache has no limits: say how long with --unused-for")
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
        click.echo(json.dumps({**report, "removed": removed, "removed_bytes": freed}, indent=2))
        return
    click.echo(f"{root}: {size(total)}; {rule(own)}")
    for line in describe(found) if found else ():
        click.echo(line)
    if remove:
        click.echo(f"removed: {size(max(0, freed))}")


@main.command("cmake-dir")
def cmake_dir() -> None:
    """Print the folder of interpool-config.cmake, for CMake's interpool_DIR."""
    import interpool.native

    click.echo(Path(str(interpool.native.__file__)).parent / "lib" / "cmake" / "interpool")


@main.command()
@click.option("--imports", is_flag=True, help="try whether private interpreters can import these modules")
@click.option("--run", is_flag=True, help="try whether these functions compute in private interpreters")
@click.option("--mar", type=click.Path(exists=True, path_type=Path), help="try whether a pool can serve this")
@click.argument("names", nargs=-1, metavar="[--imports MODULE... | --run MODULE:FUNCTION...]")
def doctor(imports: bool, run: bool, mar: Path | None, names: tuple[str, ...]) -> None:
    """Check whether this machine can do it; every line says how to fix what is wrong.

    `interpool doctor --imports numpy my_extension` imports each module into two private
    interpreters at once, in a process of its own: a crash is a line of the answer. It says no
    more than "imports": many libraries fail only when they are used.

    `interpool doctor --run trial:work` calls a function of yours, without arguments, in two private
    interpreters and in the host program at once, again and again, and compares what it answers
    with an ordinary Python's.

    `interpool doctor --mar model.mar` tries whether a pool can serve an archive that was made
    without interpool, as a server with INTERPOOL_ORDINARY_ARCHIVES=pool does.
    """
    from interpool.handler.frontend.doctor import checks as serving_checks
    from interpool.handler.host.mar_trial import checks as mar_checks
    from interpool.native.diagnostics import run_trial
    from interpool.native.diagnostics.doctor import checks as native_checks
    from interpool.native.diagnostics.import_trial import checks as import_checks

    if imports + run + (mar is not None) > 1:
        raise click.UsageError("--imports, --run and --mar are different questions")
    if (imports or run) != bool(names):
        raise click.UsageError("--imports and the modules' names go together; so do --run and functions'")
    if run and (bad := [name for name in names if not all(name.partition(":"))]):
        raise click.UsageError(f"--run takes MODULE:FUNCTION, and {bad[0]!r} is no such thing")
    failed = 0
    checks: Iterable[Check]
    if imports:
        checks = import_checks(names)
    elif run:
        checks = run_trial.checks(names)
    elif mar:
        checks = mar_checks(mar)
    else:
        checks = (*native_checks(), *serving_checks())
    for check in checks:
        failed += not check.ok
        click.echo(f"{check.mark:4}  {check.name}: {check.detail}")
        if check.hint:
            click.echo(f"      fix: {check.hint}")
    sys.exit(1 if failed else 0)
