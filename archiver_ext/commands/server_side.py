"""What the commands ask of the serving layer, above this one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click

from interpool.native.torchserve import ADDRESSES


@dataclass(frozen=True)
class ServerSide:
    """What only the serving layer, above this one, can tell; the command group's ``obj``.

    Attributes:
        handler: the path of its handler file.
        check_config: raises InterpoolError for a model-config.yaml that it would not take; by the file, and
            its name for the message.
        addresses: where a server of this machine answers requests, and where it is managed.
    """

    handler: str
    check_config: Callable[[Path, str], None]
    addresses: Callable[[], tuple[str, str]]


def addresses() -> tuple[str, str]:
    """Where requests go, and where models are registered: on the server that runs, else TorchServe's own."""
    server = click.get_current_context().find_object(ServerSide)
    if server is not None:
        return server.addresses()
    inference, management = ADDRESSES.values()
    return inference, management
