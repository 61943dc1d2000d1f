"""Says on standard error what a command waits for, so that standard output holds the result only.

SIGTERM, and SIGHUP when a terminal goes, end what waits as Ctrl-C does, so that temporary files are removed.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

# A command that takes no longer shows no progress.
_SHORT_S = 1.0


def announce(step: str) -> None:
    """Say what the command does now.

    Args:
        step: the text, such as ``packing mypkg:build``.
    """
    click.echo(f"interpool: {step}", err=True)


@contextmanager
def progress(step: str) -> Iterator[Callable[[str], None]]:
    """Say what the command waits for; print nothing on standard output meanwhile.

    A terminal shows it for as long as it takes. Elsewhere it is one line at the beginning. SIGTERM and SIGHUP
    raise KeyboardInterrupt meanwhile, unless they are ignored, as by nohup. For the main thread only.

    Args:
        step: the first step, as for ``announce``.

    Yields:
        A function that shows another step. It does so on a terminal only.
    """
    from rich.console import Console
    from rich.markup import escape

    console = Console(stderr=True)
    if not console.is_terminal:
        announce(step)
    before = {
        number: signal.signal(number, signal.default_int_handler)
        for number in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        with console.status(escape(step)) as status:
            yield lambda text: status.update(escape(text))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def progress_if_slow(step: str) -> Iterator[None]:
    """Show on a terminal what a command that is short as a rule waits for, once it has waited for a second.

    Args:
        step: as for ``announce``.
    """
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.markup import escape

    status = Console(stderr=True).status(escape(step))
    start = threading.Timer(_SHORT_S, status.start)
    start.start()
    try:
        yield
    finally:
        start.cancel()
        start.join()
        status.stop()
