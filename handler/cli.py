"""The ``interpool`` command: each layer's subcommands in one place."""

from __future__ import annotations

import contextlib
import importlib.util
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

from interpool.archiver_ext.commands.json_output import JSON, print_error, print_json
from interpool.handler import interpool_handler
from interpool.handler.frontend import shim
from interpool.handler.torchserve import HOME_VARIABLE, running_addresses, running_frontend
from interpool.native.errors import ArchiveError, InterpoolError
from interpool.native.upstream.requirements import pip_install

if TYPE_CHECKING:
    from interpool.native.diagnostics.doctor import Check
METRICS_ADDRESS = "INTERPOOL_METRICS_ADDRESS"
START_AHEAD = "INTERPOOL_START_AHEAD"
DIRECT_ADDRESS = "INTERPOOL_DIRECT_ADDRESS"

_ERRORS_AS_JSON = "interpool.errors_as_json"
_HELP = {"help_option_names": ["-h", "--help"]}

# What the torchserve command does.
_START = "from ts.model_server import start; sys.exit(start())"


class _CommandFailed(Exception):
    """A command ends with a message and an exit status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Commands(click.Group):
    """Imports the archiver's subcommands, and what they need, only when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, sorted."""
        return sorted({*super().list_commands(ctx), "run", *self._archiver()})

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Note whether errors are to be JSON: before what may be wrong with the subcommand's own options."""
        ctx.meta[_ERRORS_AS_JSON] = "--json" in args and args[0] != "serve"  # which passes its options on
        return super().parse_args(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The subcommand of that name."""
        own = super().get_command(ctx, cmd_name)
        if own is None and cmd_name == "run":
            from interpool.handler.run.command import run

            return run
        if own is None:
            ctx.obj = _server_side()
        return own or self._archiver().get(cmd_name)

    def invoke(self, ctx: click.Context) -> Any:
        """Run it; an error of interpool's is a message and an exit status, not a traceback."""
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            if ctx.meta[_ERRORS_AS_JSON]:
                print_error(ctx, status=error.exit_code, message=error.format_message())
            raise
        except _CommandFailed as error:
            said, status, facts = str(error), error.status, {"message": str(error)}
        except InterpoolError as error:
            said, status, facts = str(error), exit_status(error), _facts_of(error)
        if ctx.meta[_ERRORS_AS_JSON]:
            print_error(ctx, status=status, **facts)
        click.echo(f"interpool: {said}", err=True)
        sys.exit(status)

    @staticmethod
    def _archiver() -> dict[str, click.Command]:
        from interpool.archiver_ext.commands.subcommands import commands

        return {str(command.name): command for command in commands}


OTHER, REFUSED, NOT_PACKED, NOT_SERVED = 1, 3, 4, 5

# 2 is click's own.
EXIT_STATUS = """\b
Exit status:
  0  done
  1  something else went wrong, or `doctor` says FAIL (with WARN alone it is 0)
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


def _facts_of(error: InterpoolError) -> dict[str, str]:
    """The parts of an error's text."""
    from interpool.archiver_ext.errors import PackError

    if isinstance(error, PackError):
        return {"message": error.message, "traceback": error.user_traceback}
    if isinstance(error, ArchiveError):
        return {"message": error.message, "rule": error.rule}
    return {"message": str(error)}


def _fail(message: str, status: int) -> NoReturn:
    raise _CommandFailed(message, status)


def _handler_file() -> Path:
    return Path(str(interpool_handler.__file__)).resolve()


def _server_side() -> object:
    """What the archiver, a layer below, asks its context for."""
    from interpool.archiver_ext.commands.server_side import ServerSide

    def check_config(file: Path, shown_as: str) -> None:
        from interpool.handler.config import ModelSettings

        ModelSettings.of_file(file, shown_as)

    return ServerSide(str(_handler_file()), check_config, running_addresses)


@click.group("interpool", cls=Commands, epilog=EXIT_STATUS, context_settings=_HELP)
@click.version_option(package_name="interpool")
def main() -> None:
    """Serve ordinary PyTorch models from one process of many private interpreters."""


@main.command(
    short_help="Run torchserve with the overlay",
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    add_help_option=False,
)
@click.pass_context
def serve(ctx: click.Context) -> None:
    """Run torchserve with the overlay; takes torchserve's own flags.

    `interpool serve --foreground --model-store DIR` serves until it is interrupted. Without
    --direct HOST:PORT, or unix:PATH, has the pool answer HTTP there itself; see docs/direct.md. Without
    --foreground it returns when the server listens, which goes on in the background until
    `interpool serve --stop`; with --no-wait it returns at once.
    """
    from interpool.handler.config import HostSettings
    from interpool.handler.frontend.doctor import java_path, missing_java

    asked = set(ctx.args)
    if packages := [word for word in ctx.args if word.endswith(".ptpkg")]:
        package = packages[0].rpartition("=")[2]
        raise click.UsageError(
            f"TorchServe takes no {package}: wrap it first, with `interpool archive {package} --export-path "
            "MODEL_STORE`, and name the .mar"
        )
    ctx.args = [argument for argument in ctx.args if argument != "--no-wait"]
    _take_direct_address(ctx)
    if asked & {"--help", "-h"}:
        click.echo(f"{ctx.get_help()}\n\ntorchserve's own flags:\n")
    if asked.isdisjoint({"--stop", "--version", "-v", "--help", "-h"}):
        if java_path() is None:
            missing = missing_java()
            _fail(f"TorchServe needs Java: {missing.detail}\n  What to do: {missing.hint}", NOT_SERVED)
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
        command = [sys.executable, "-P", "-c", start, *ctx.args]
    else:
        command = [program, *ctx.args]
    if "--start" not in ctx.args or not asked.isdisjoint({"--foreground", "--no-wait"}):
        os.execv(command[0], command)
    else:
        _start_and_wait(command)


def _take_direct_address(ctx: click.Context) -> None:
    """Give ``--direct ADDRESS`` to the pool's host, by its environment."""
    words = iter(ctx.args)
    ctx.args = []
    for word in words:
        name, equals, address = word.partition("=")
        if name == "--direct":
            os.environ[DIRECT_ADDRESS] = address if equals else next(words, "")
        else:
            ctx.args.append(word)
    if chosen := os.environ.get(DIRECT_ADDRESS):
        from interpool.handler.direct.listening import Address

        Address.of_text(chosen)
        if missing := [
            name for name in ("uvicorn", "uvloop", "aiohttp") if importlib.util.find_spec(name) is None
        ]:
            _fail(f"the direct address needs {missing[0]}: pip install 'interpool[direct]'", NOT_SERVED)


def _start_and_wait(command: list[str]) -> None:
    from interpool.handler.frontend.starting import await_server

    if status := subprocess.run(command, check=False).returncode:
        sys.exit(status)
    served = await_server(lambda text: click.echo(f"interpool: {text}"))
    click.echo(f"interpool: {served}")


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


@main.command(short_help="Serve the pools' metrics to Prometheus")
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


@main.command(short_help="Print the overlay's path, for TS_MODEL_SERVER_HOME")
@JSON
def home(as_json: bool) -> None:
    """Print the overlay's path, for TS_MODEL_SERVER_HOME."""
    from interpool.handler.frontend.overlay import overlay

    _print_path(overlay(), as_json)


@main.command(short_help="Print the handler file's path, for torch-model-archiver")
@JSON
def handler(as_json: bool) -> None:
    """Print the handler file's path, for torch-model-archiver --handler."""
    _print_path(_handler_file(), as_json)


def _print_path(path: Path, as_json: bool) -> None:
    if as_json:
        print_json({"path": str(path)})
    else:
        click.echo(path)


@main.command(epilog=CHECK_STATUS, short_help="Show the live pools, or whether a model is ready")
@JSON
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
    """Show the live pools: interpreters, models, workers, memory.

    --json gives a list of the hosts' own answers; with --check, an object.
    """
    from interpool.handler.host.status import describe_pool, unanswered

    if stacks + watch + (check is not None) > 1 or (as_json and watch):
        raise click.UsageError("--stacks, --watch and --check are different questions; --watch gives no JSON")
    try:
        nobody = f"no pool host is running (looked in {shim.runtime_base()})"
    except shim.Refused:
        _require_runtime_directory()
        raise
    if check is not None:
        _check(check, *_pools(), patience, nobody, as_json)
        return
    if watch:
        from interpool.handler.host.status import ask_hosts
        from interpool.handler.host.watch import watch as show

        show(ask_hosts, nobody, times=times)
        return
    pools, silent = _pools(stacks)
    if as_json:
        print_json(pools)
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


def _register_advice(name: str) -> str:
    """What to do about a model that no pool serves."""
    management = running_addresses()[1]
    if running_frontend() is None:
        return "  What to do: start a server, `interpool serve --model-store DIR --models NAME.mar`"
    mar = "NAME.mar" if name == "*" else f"{name.partition('/')[0]}.mar"
    return (
        f"  What to do: `curl {management}/models` lists all that TorchServe has. "
        f'Register a model: curl -X POST "{management}/models?url={mar}&initial_workers=1&synchronous=true"'
    )


def _check(
    name: str,
    pools: list[dict[str, Any]],
    silent: list[str],
    patience_s: float,
    nobody: str,
    as_json: bool,
) -> None:
    """Say whether a model is ready in every pool that serves it, and exit so."""
    from interpool.handler.host.readiness import answer_of, readiness, why_absent
    from interpool.handler.host.status import unanswered

    found = readiness(pools, name, patience_s)
    if silent and not found:
        _fail(unanswered(silent), OTHER)
    if not found:
        _fail(f"{why_absent(pools, name) if pools else nobody}\n{_register_advice(name)}", NOT_SERVED)
    ready = not any(one.reasons for one in found)
    if as_json:
        print_json(answer_of(found))
    for one in [] if as_json else found:
        said = "not ready: " + "; ".join(one.reasons) if one.reasons else "ready"
        click.echo(f"{one.model}/{one.version} in pool {one.pool!r}: {said}")
    if not ready:
        sys.exit(OTHER)


@main.command(short_help="Make private copies for C++ programs, ahead of them")
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


@main.command(short_help="Show the cache of private copies, or clean it")
@click.option("--remove", is_flag=True, help="remove now what no process has used for so long")
@click.option(
    "--unused-for",
    type=click.FloatRange(min=0),
    metavar="DAYS",
    help="with --remove: 0 is all that no process uses now  [default: by the cache's own limits]",
)
@JSON
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
        print_json({**report, "removed": removed, "removed_bytes": freed})
        return
    click.echo(f"{root}: {size(total)}; {rule(own)}")
    for line in describe(found) if found else ():
        click.echo(line)
    if remove:
        click.echo(f"removed: {size(max(0, freed))}")


@main.command("cmake-dir", short_help="Print the folder of interpool-config.cmake")
@JSON
def cmake_dir(as_json: bool) -> None:
    """Print the folder of interpool-config.cmake, for CMake's interpool_DIR."""
    import interpool.native

    _print_path(Path(str(interpool.native.__file__)).parent / "lib" / "cmake" / "interpool", as_json)


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


@main.command(short_help="Check this machine, a library or an archive")
@click.option("--imports", is_flag=True, help="try whether private interpreters can import these modules")
@click.option("--run", is_flag=True, help="try whether these functions compute in private interpreters")
@click.option("--mar", type=click.Path(exists=True, path_type=Path), help="try whether a pool can serve this")
@click.argument("names", nargs=-1, metavar="[--imports MODULE... | --run MODULE:FUNCTION...]")
@JSON
def doctor(imports: bool, run: bool, mar: Path | None, names: tuple[str, ...], as_json: bool) -> None:
    """Check whether this machine can do it; every line says how to fix what is wrong.

    It ends with 1 if a line says FAIL, which something does not work with. WARN says what to know about
    something that works, and fails nothing.

    `interpool doctor --imports numpy my_extension` imports each module into two private
    interpreters at once, in a process of its own: a crash is a line of the answer. It says no
    more than "imports": many libraries fail only when they are used.

    `interpool doctor --run trial:work` calls a function of yours, without arguments, in two private
    interpreters and in the host program at once, again and again, and compares what it answers
    with an ordinary Python's.

    `interpool doctor --mar model.mar` tries whether a pool can serve an archive, as a server with this
    environment does when it is registered: a .mar, a .tar.gz, a directory or a .ptpkg; one that was made
    without interpool as with INTERPOOL_ORDINARY_ARCHIVES=pool.
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
    checks: Iterable[Check]
    if imports:
        checks = import_checks(names)
    elif run:
        checks = run_trial.checks(names)
    elif mar:
        checks = mar_checks(mar)
    else:
        checks = (*native_checks(), *serving_checks(), _settings_check())
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
