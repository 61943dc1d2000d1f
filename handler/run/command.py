"""``interpool run``: serve archives without TorchServe."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys

import click

from interpool.archiver_ext.commands.help_text import examples
from interpool.handler.direct.listening import Address
from interpool.handler.errors import ServeError
from interpool.handler.torchserve import ENVELOPES
from interpool.native.torchserve import MOST_REQUEST_BYTES

logger = logging.getLogger("interpool.direct")
_SECONDS = click.FloatRange(min=0, min_open=True)


@click.command(
    "run",
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
    "--workers",
    type=click.IntRange(min=1),
    metavar="N",
    show_default="minWorkers, else 4 for each interpreter",
    help="the most batches of a model that are in flight",
)
@click.option(
    "--batch-size",
    type=click.IntRange(min=1),
    metavar="N",
    show_default="batchSize, else 1",
    help="the most requests in a batch",
)
@click.option(
    "--max-batch-delay",
    type=click.IntRange(min=0),
    metavar="MS",
    show_default="maxBatchDelay, else 100",
    help="how long a batch waits for more requests",
)
@click.option(
    "--queue",
    type=click.IntRange(min=1),
    metavar="N",
    show_default="jobQueueSize, else 100",
    help="the most requests of a model that wait",
)
@click.option(
    "--response-timeout",
    type=_SECONDS,
    metavar="SECONDS",
    show_default="responseTimeout, else 120",
    help="how long a model may take for a batch",
)
@click.option(
    "--client-timeout",
    type=_SECONDS,
    metavar="SECONDS",
    show_default="clientTimeoutInMills, else none",
    help="how long a request may go unanswered",
)
@click.option(
    "--service-envelope",
    type=click.Choice(ENVELOPES),
    show_default="none",
    help="the form of requests and answers",
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
    workers: int | None,
    batch_size: int | None,
    max_batch_delay: int | None,
    queue: int | None,
    response_timeout: float | None,
    client_timeout: float | None,
    service_envelope: str | None,
    max_request_size: int,
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
    from interpool.handler.direct.application import Limits
    from interpool.handler.host import log_lines
    from interpool.handler.host.start import prepare_process
    from interpool.handler.run.archives import Options, named
    from interpool.handler.run.serving import Serving, application

    settings = HostSettings.of_environment()
    log_lines.set_up()
    prepare_process()
    options = Options.of(
        {
            "workers": workers,
            "batch_size": batch_size,
            "batch_delay_ms": max_batch_delay,
            "queue_size": queue,
            "response_timeout_s": response_timeout,
            "client_timeout_s": client_timeout,
            "envelope": service_envelope or "",
        }
    )
    limits = Limits(max_request_size, body_s=None)
    serving = Serving(named(list(archives)), options, settings)
    address = Address(path=os.path.abspath(uds)) if uds else Address(host, port)
    with contextlib.ExitStack() as stack:
        listeners = _bound(address, stack)
        if not uds:
            address = Address(host, listeners[0].getsockname()[1])  # which was chosen, if none was named
        serving.address = str(address)
        running = server(application(serving, limits), listeners)

        async def serve() -> None:
            async with serving.open():
                for number in (signal.SIGINT, signal.SIGTERM):
                    signal.signal(number, _heard)  # uvicorn handles the signal, and sends it again at its end
                logger.info("listening at %s", address if uds else f"http://{address}")
                try:
                    await running.serve()
                except OSError as error:
                    raise _not_had(address, error) from None

        signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that archives' directories are removed
        with contextlib.suppress(KeyboardInterrupt):
            uvloop.run(serve())
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0 if running.started else 1)  # with torch inside, only the end of the process is safe


def _bound(address: Address, stack: contextlib.ExitStack) -> list[socket.socket]:
    """Sockets bound at an address, which are closed with the stack; raises ServeError."""
    try:
        listeners = [stack.enter_context(each) for each in address.bind()]
        if address.path:
            os.chmod(address.path, 0o666)  # so that a proxy of another user can connect
    except OSError as error:
        raise _not_had(address, error) from None
    return listeners


def _not_had(address: Address, error: OSError) -> ServeError:
    return ServeError(f"the address {address} cannot be had: {error.strerror or error}. Name another one")


def _heard(_number: int, _frame: object) -> None:
    """Do nothing: the server has already ended because of the signal."""
