"""``interpool serve``."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import subprocess
import sys

import click

from interpool.handler.commands.common import NOT_SERVED, fail, require_runtime_directory
from interpool.handler.commands.exporter import METRICS_ADDRESS
from interpool.handler.frontend import shim
from interpool.handler.torchserve import HOME_VARIABLE, running_frontend
from interpool.native.upstream.requirements import pip_install

START_AHEAD = "INTERPOOL_START_AHEAD"
DIRECT_ADDRESS = "INTERPOOL_DIRECT_ADDRESS"

# The code that the torchserve command runs.
_START = "from ts.model_server import start; sys.exit(start())"


@click.command(
    short_help="Run torchserve with the overlay",
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    add_help_option=False,
)
@click.pass_context
def serve(ctx: click.Context) -> None:
    """Run torchserve with the overlay; takes torchserve's own flags.

    `interpool serve --foreground --model-store DIR` serves until it is interrupted, or gets SIGTERM. Without
    --foreground it returns when the server listens, which goes on in the background until
    `interpool serve --stop`; with --no-wait it returns at once. With --direct HOST:PORT, or unix:PATH,
    the pool answers HTTP there itself; see docs/direct.md.
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
    ctx.args = [argument for argument in ctx.args if argument != "--no-wait"]
    _take_direct_address(ctx)
    if asked & {"--help", "-h"}:
        click.echo(f"{ctx.get_help()}\n\ntorchserve's own flags:\n")
    if asked.isdisjoint({"--stop", "--version", "-v", "--help", "-h"}):
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
        from interpool.handler.frontend.server_home import make_server_home

        remove_leftovers(temporary_directory())
        if address := os.environ.get(METRICS_ADDRESS):
            _start_exporter(address, foreground="--foreground" in asked)
        _share_output()
        _start_host_ahead(foreground="--foreground" in asked)
        home, held = make_server_home(temporary_directory())  # last, after all that may refuse to start
        os.environ[HOME_VARIABLE] = str(home)
        os.dup2(held, 0)  # the frontend inherits it, and so holds its home
    sys.stdout.flush()
    command, start = [program, *ctx.args], ""
    if "INTERPOOL_SIGNATURE_KEYS" in os.environ and "--start" in ctx.args:
        # See the overlay. TorchServe takes its workers' Python from the process that starts it, or from PATH.
        os.environ["PATH"] = os.pathsep.join([str(home / "bin"), os.environ.get("PATH", os.defpath)])
        start += f"sys.executable = {str(home / 'bin' / 'python')!r}; "
    if "--foreground" in asked and "--start" in ctx.args:
        start += f"from interpool.handler.host.draining import drain_on_sigterm as d; d({drain_s}); "
    if start:
        command = [sys.executable, "-P", "-c", f"import sys; {start}{_START}", *ctx.args]
    if "--start" not in ctx.args or not asked.isdisjoint({"--foreground", "--no-wait"}):
        os.execv(command[0], command)
    else:
        _start_and_wait(command)


def _take_direct_address(ctx: click.Context) -> None:
    """Take ``--direct ADDRESS`` from the arguments and pass it to the pool's host, in the environment."""
    words = iter(ctx.args)
    ctx.args = []
    for word in words:
        name, equals, address = word.partition("=")
        if name == "--direct":
            address = address if equals else next(words, "")
            if not address:
                raise click.UsageError("--direct needs an address: HOST:PORT, or unix:/PATH")
            os.environ[DIRECT_ADDRESS] = address
        else:
            ctx.args.append(word)
    if chosen := os.environ.get(DIRECT_ADDRESS):
        from interpool.handler.direct.listening import Address

        Address.of_text(chosen)
        if missing := [
            name for name in ("uvicorn", "uvloop", "aiohttp") if importlib.util.find_spec(name) is None
        ]:
            fail(f"the direct address needs {missing[0]}: pip install 'interpool[direct]'", NOT_SERVED)


def _start_and_wait(command: list[str]) -> None:
    from interpool.handler.frontend.starting import await_server

    if status := subprocess.run(command, check=False).returncode:
        sys.exit(status)
    served = await_server(lambda text: click.echo(f"interpool: {text}"))
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
