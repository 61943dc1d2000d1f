"""``interpool exporter``."""

from __future__ import annotations

import contextlib

import click

from interpool.archiver_ext.commands.help_text import examples

METRICS_ADDRESS = "INTERPOOL_METRICS_ADDRESS"


@click.command(
    short_help="Serve the pools' metrics to Prometheus",
    epilog=examples("interpool exporter", "interpool exporter --listen 0.0.0.0:9191"),
)
@click.option(
    "--listen",
    "address",
    default="127.0.0.1:9191",
    envvar=METRICS_ADDRESS,
    show_envvar=True,
    metavar="HOST:PORT",
    help="address at which Prometheus asks; without HOST, only this machine can ask",
)
def exporter(address: str) -> None:
    """Serve the metrics of all live pools of this user to Prometheus, until interrupted.

    `interpool serve` does this by itself if INTERPOOL_METRICS_ADDRESS is set.
    """
    from interpool.handler.host.prometheus import listen, serve_metrics, url_of

    with listen(address) as listener:
        click.echo(f"the pools' metrics are at {url_of(listener)}")
        with contextlib.suppress(KeyboardInterrupt):
            serve_metrics(listener, until=lambda: False)
