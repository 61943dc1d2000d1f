"""Functions that several commands share: failing, printing a path, and checking the runtime directory."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import click

from interpool.archiver_ext.commands.json_output import print_json

OTHER, REFUSED, NOT_PACKED, NOT_SERVED = 1, 3, 4, 5
"""Exit statuses; 2 is click's own."""


class CommandFailed(Exception):
    """A command ends with a message and an exit status.

    Attributes:
        status: the exit status.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def fail(message: str, status: int) -> NoReturn:
    """End the command.

    Args:
        message: what happened, on which file or model, and what to do.
        status: one of the exit statuses above.

    Raises:
        CommandFailed: always.
    """
    raise CommandFailed(message, status)


def print_path(path: Path, as_json: bool) -> None:
    """Print a path.

    Args:
        path: the path to print.
        as_json: whether to print a JSON object whose ``path`` it is.
    """
    if as_json:
        print_json({"path": str(path)})
    else:
        click.echo(path)


def require_runtime_directory() -> None:
    """Fail, and say what to do, if no worker would find a pool host.

    Raises:
        CommandFailed: the runtime directory cannot be used.
    """
    from interpool.handler.frontend.serving_checks import runtime_directory

    check = runtime_directory()
    if not check.ok:
        fail(f"{check.detail}: no worker would find a pool host\n  What to do: {check.hint}", NOT_SERVED)
