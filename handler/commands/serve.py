"""``interpool serve``."""

from __future__ import annotations

import errno
import fcntl
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import click

from interpool.archiver_ext.commands.help_text import examples
from interpool.archiver_ext.commands.progress import announce
from interpool.handler.commands.common import NOT_SERVED, fail, require_runtime_directory
from interpool.handler.commands.exporter import METRICS_ADDRESS
from interpool.handler.commands.serve_help import ServeCommand
from interpool.handler.frontend import shim
from interpool.handler.torchserve import running_frontend
from interpool.native.upstream.requirements import pip_install

if TYPE_CHECKING:
    from interpool.handler.direct.listening import Address

START_AHEAD = "INTERPOOL_START_AHEAD"
DIRECT_ADDRESS = "INTERPOOL_DIRECT_ADDRESS"
RELEASE_S = 15.0  # wait so long for the host of a stopped server to release the direct address

# The modules whose ``start`` the torchserve command calls, and which takes its place in the foreground.
_LAUNCHER, _FOREGROUND = "ts.model_server", "interpool.handler.frontend.foreground"


@click.command(
    cls=ServeCommand,
    short_help="Run torchserve with the overlay",
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    add_help_option=False,
    options_metavar="[OPTIONS] [TORCHSERVE'S FLAGS]",
    epilog=examples(
        "interpool serve --model-store model_store --models m.mar",
        "interpool serve --stop",
    ),
)
@click.option(
    "--direct",
    is_flag=False,
    flag_value="",  # so that an option without its address is refused with the same words as an empty one
    metavar="HOST:PORT|unix:/PATH",
    envvar=DIRECT_ADDRESS,
    show_envvar=True,
    help="address at which the pool answers HTTP itself, as docs/direct.md says",
)
@click.option("--no-wait", is_flag=True, help="return at once, not when the server in the background listens")
@click.option("-h", "--help", "is_help", is_flag=True, help="show this message, and torchserve's own flags")
@click.pass_context
def serve(ctx: click.Context, direct: str | None, no_wait: bool, is_help: bool) -> None:
    """Start TorchServe with pools in place of its worker processes; stop it with --stop.

    The command starts `torchserve` with the overlay. It takes torchserve's own flags, which stand below.

    With --foreground it serves until it is interrupted, or gets SIGTERM. Otherwise the server goes on in the
    background. The command then returns when the server listens. Either signal before that ends the server.
    """
    from interpool.handler.config import HostSettings
    from interpool.handler.frontend.serving_checks import java_path, missing_java

    asked = set(ctx.args)
    drain_s = 0.0
    if packages := [word for word in ctx.args if word.endswith(".ptpkg")]:
        package = packages[0].rpartition("=")[2]
        raise click.UsageError(
            f"TorchServe takes no {package}: wrap it first, with `interpool archive {package} --export-path "
            "MODEL_STORE`, and name the .mar"
        )
    if is_help:
        click.echo(f"{ctx.get_help()}\n\ntorchserve's own flags:\n")
        ctx.args = ["--help"]
    elif asked.isdisjoint({"--stop", "--version", "-v"}):
        if direct is not None:
            _use_direct_address(direct)
        if java_path() is None:
            missing = missing_java()
            fail(f"TorchServe needs Java: {missing.detail}\n  What to do: {missing.hint}", NOT_SERVED)
        if importlib.util.find_spec("yaml") is None:
            fail("TorchServe's workers need PyYAML: pip install PyYAML", NOT_SERVED)
        # Each worker needs this directory. Without it, TorchServe only says that the worker failed to start.
        require_runtime_directory()
        drain_s = HostSettings.of_environment().drain_s
        if "--start" not in asked:
            ctx.args.insert(0, "--start")
    beside = os.path.join(os.path.dirname(sys.executable), "torchserve")
    program = beside if os.access(beside, os.X_OK) else shutil.which("torchserve")
    if program is None:
        fail(f"the torchserve command is missing: {pip_install('torchserve')}", NOT_SERVED)
    if "--start" in ctx.args:
        from interpool.handler.frontend.leftovers import remove_leftovers, temporary_directory
        from interpool.handler.frontend.server_home import make_server_home, take_as_stdin

        remove_leftovers(temporary_directory())
        if address := os.environ.get(METRICS_ADDRESS):
            _start_exporter(address, foreground="--foreground" in asked)
        _share_output()
        _start_host_ahead(foreground="--foreground" in asked)
        home, held = make_server_home(temporary_directory())  # last, after all that may refuse to start
        take_as_stdin(home, held)
    sys.stdout.flush()
    command, start, launcher = [program, *ctx.args], "", _LAUNCHER
    if "INTERPOOL_SIGNATURE_KEYS" in os.environ and "--start" in ctx.args:
        # See the overlay. TorchServe takes its workers' Python from the process that starts it, or from PATH.
        os.environ["PATH"] = os.pathsep.join([str(home / "bin"), os.environ.get("PATH", os.defpath)])
        start += f"sys.executable = {str(home / 'bin' / 'python')!r}; "
    if "--foreground" in asked and "--start" in ctx.args:
        start += f"from interpool.handler.host.draining import drain_on_sigterm as d; d({drain_s}); "
        start += "from interpool.handler.frontend.server_home import let_go_at_exit as a; a(); "
        launcher = _FOREGROUND
    if start:
        start = f"import sys; {start}from {launcher} import start; sys.exit(start())"
        command = [sys.executable, "-P", "-c", start, *ctx.args]
    if "--start" not in ctx.args or no_wait or "--foreground" in asked:
        os.execv(command[0], command)
    else:
        _start_and_wait(command)


def _use_direct_address(address: str) -> None:
    """Check the direct address, and pass it to the pool's host, in the environment."""
    from interpool.handler.direct.listening import Address

    if not address:
        raise click.UsageError("--direct needs an address: HOST:PORT, or unix:/PATH")
    place = Address.of_text(address)
    if missing := [
        name for name in ("uvicorn", "uvloop", "aiohttp") if importlib.util.find_spec(name) is None
    ]:
        fail(f"the direct address needs {missing[0]}: pip install 'interpool[direct]'", NOT_SERVED)
    if running_frontend() is None:  # else torchserve refuses to start
        _await_free(place)
    os.environ[DIRECT_ADDRESS] = address


def _await_free(place: Address) -> None:
    """Wait for an address that another process has; raises ServeError if that keeps it."""
    give_up = time.monotonic() + RELEASE_S
    is_said = False
    while True:
        try:
            place.try_out()
            return
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > give_up:
                raise place.not_had(error) from None
        if not is_said:
            announce(f"waiting for the direct address {place}, which another process has")
            is_said = True
        time.sleep(0.2)


def _start_and_wait(command: list[str]) -> None:
    from interpool.handler.frontend.server_home import let_go
    from interpool.handler.frontend.starting import await_server

    announce("starting TorchServe")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C, it cancels the start
    try:
        if status := subprocess.run(command, check=False).returncode:
            sys.exit(status)
        served = await_server(announce)
    finally:
        let_go()
    click.echo(f"interpool: {served}")


def _share_output() -> None:
    """If the pool's host logs to this process's stdout, have this process append to that file, too."""
    if os.environ.get(shim.LOG_TO) == "stdout":
        flags = fcntl.fcntl(1, fcntl.F_GETFL)
        fcntl.fcntl(1, fcntl.F_SETFL, flags | os.O_APPEND)


def _start_host_ahead(foreground: bool) -> None:
    """Start the program that starts the pool's host together with the server (frontend/ahead.py)."""
    wish = os.environ.get(START_AHEAD) or "1"
    if wish not in ("0", "1"):
        fail(f"{START_AHEAD} must be 0 or 1, not {wish!r}", NOT_SERVED)
    if wish == "0" or running_frontend() is not None:
        return
    said = None if foreground else subprocess.DEVNULL
    program = [sys.executable, "-P", "-m", "interpool.handler.frontend.ahead"]
    # The shell ends at once. Otherwise the program would be a child of the one that this process becomes,
    # which does not wait for its end.
    subprocess.run(
        ["/bin/sh", "-c", '"$@" &', "sh", *program, f"--launcher={os.getpid()}"],
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=said,
        stderr=said,
        start_new_session=True,
    )


def _start_exporter(address: str, foreground: bool) -> None:
    """Start the metrics' exporter beside the program that this process becomes.

    It ends with that program, or with the TorchServe that the program leaves running.
    """
    from interpool.handler.host.prometheus import listen_beside_others, url_of

    listener = listen_beside_others(address)
    if listener is None:
        click.echo(f"interpool: another server's exporter answers at {address}; this one starts none")
        return
    with listener:
        descriptor = listener.fileno()
        program = [sys.executable, "-P", "-m", "interpool.handler.host.prometheus"]
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
