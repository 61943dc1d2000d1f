"""``interpool run``: serve archives without TorchServe."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from interpool.archiver_ext.commands.help_text import examples
from interpool.handler.direct.listening import Address
from interpool.handler.errors import ServeError
from interpool.native.torchserve import MOST_REQUEST_BYTES

if TYPE_CHECKING:
    from interpool.handler.described import Setting

HOST_ENDED = 5  # exit status, as of each ServeError

logger = logging.getLogger("interpool.direct")


class RunCommand(click.Command):
    """A command that takes the settings of archives, too, described where they are defined."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """All parameters: what the settings need is imported only if the command is used."""
        from interpool.handler.described import described
        from interpool.handler.run.options import Options

        *own, asks_for_help = super().get_params(ctx)
        return [*own, *map(_option, described(Options)), asks_for_help]


def _option(setting: Setting) -> click.Option:
    """The option for a setting of archives."""
    from interpool.handler.described import plain

    (kind,) = setting.kinds
    metavar: str | None = None
    if "enum" in kind:
        accepted: click.ParamType[Any] = click.Choice(kind["enum"])
    elif kind["type"] == "integer":
        accepted, metavar = click.IntRange(min=kind["minimum"]), kind.get("unit", "n").upper()
    else:
        accepted, metavar = click.FloatRange(min=kind["exclusiveMinimum"], min_open=True), "SECONDS"
    return click.Option(
        [setting.option, setting.name],
        type=accepted,
        metavar=metavar,
        show_default=plain(setting.default),
        help=setting.summary[0].lower() + setting.summary[1:],
    )


@click.command(
    "run",
    cls=RunCommand,
    short_help="Serve archives without TorchServe",
    epilog=examples("interpool run m.mar", "interpool run price=m.ptpkg --port 8090"),
)
@click.argument("archives", nargs=-1, required=True, metavar="[NAME=]ARCHIVE...")
@click.option("--host", default="127.0.0.1", metavar="ADDRESS", help="address to listen at")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8080,
    metavar="N",
    help="port to listen at; 0 takes one that is free",
)
@click.option("--uds", metavar="PATH", help="listen at this unix socket instead")
@click.option(
    "--interpreters",
    type=click.IntRange(1, 256),
    metavar="N",
    show_default="INTERPOOL_INTERPRETERS, else cores",
    help="interpreters in the pool",
)
@click.option(
    "--max-request-size",
    type=click.IntRange(min=1),
    default=MOST_REQUEST_BYTES,
    metavar="BYTES",
    help="the size above which a request is refused",
)
def run(
    archives: tuple[str, ...],
    host: str,
    port: int,
    uds: str | None,
    interpreters: int | None,
    max_request_size: int,
    **options: Any,
) -> None:
    """Serve archives over TorchServe's inference API, without TorchServe and Java.

    ARCHIVE is a .mar, a .tar.gz, a .ptpkg, or an extracted archive's directory. NAME is the model's name for
    clients, by default the file's. The options override the model's own model-config.yaml, whose keys stand
    as defaults below. Logs go to standard error. INTERPOOL_ variables work as for `interpool serve`.
    """
    if interpreters is not None:
        os.environ["INTERPOOL_INTERPRETERS"] = str(interpreters)
    try:
        import uvloop

        from interpool.handler.direct.server import server
    except ImportError as error:
        raise ServeError(f"{error.name} is missing: pip install 'interpool[direct]'") from None
    from interpool.handler.config import HostSettings
    from interpool.handler.described import described
    from interpool.handler.direct.application import Limits
    from interpool.handler.host import log_lines
    from interpool.handler.host.start import prepare_process
    from interpool.handler.run.archives import named
    from interpool.handler.run.options import Options
    from interpool.handler.run.serving import Serving, application

    settings = HostSettings.of_environment()
    log_lines.set_up()
    prepare_process()
    names = {setting.name: setting.option for setting in described(Options)}
    given = {name: value for name, value in options.items() if value is not None}
    chosen = Options.of(given, names.__getitem__)
    limits = Limits(max_request_size, body_s=None)
    serving = Serving(named(list(archives)), chosen, settings, ends_process=True)
    address = Address(path=os.path.abspath(uds)) if uds else Address(host, port)
    with contextlib.ExitStack() as stack:
        listeners = _bound(address, stack)
        if not uds:
            address = Address(host, listeners[0].getsockname()[1])  # which was chosen, if none was named
        serving.address = str(address)
        running = server(application(serving, limits), listeners, timeout_graceful_shutdown=None)
        serving.on_host_end = lambda: setattr(running, "should_exit", True)

        async def serve() -> None:
            async with serving.open():
                for number in (signal.SIGINT, signal.SIGTERM):
                    # uvicorn handles the signals, and sends them again at its end.
                    signal.signal(number, _second_signal(asyncio.current_task()))
                logger.info("listening at %s", address if uds else f"http://{address}")
                try:
                    await running.serve()
                except OSError as error:
                    raise address.not_had(error) from None

        signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that archives' directories are removed
        with contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError):
            uvloop.run(serve())
    sys.stdout.flush()
    sys.stderr.flush()
    status = HOST_ENDED if serving.models.has_failed else 0 if running.started else 1
    os._exit(status)  # with torch inside, only the end of the process is safe


def _bound(address: Address, stack: contextlib.ExitStack) -> list[socket.socket]:
    """Sockets bound at an address, which are closed with the stack; raises ServeError."""
    try:
        listeners = [stack.enter_context(each) for each in address.bind()]
        if address.path:
            os.chmod(address.path, 0o666)  # so that a proxy of another user can connect
    except OSError as error:
        raise address.not_had(error) from None
    return listeners


def _second_signal(task: asyncio.Task[None] | None) -> Callable[[int, object], None]:
    """A signal handler that ends a task at the second signal; the server has ended because of the first."""
    heard: list[int] = []

    def hear(number: int, _frame: object) -> None:
        heard.append(number)
        if len(heard) > 1 and task is not None:
            task.get_loop().call_soon_threadsafe(task.cancel)

    return hear
