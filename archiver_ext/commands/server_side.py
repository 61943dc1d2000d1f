"""The interface through which commands use the serving layer, above this one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click

from interpool.native.torchserve import ADDRESSES


@dataclass(frozen=True)
class ServerSide:
    """Functions of the serving layer; the command group's ``obj``.

    Attributes:
        handler: the path of its handler file.
        check_config: raises InterpoolError if a server would refuse a model-config.yaml; takes the file and
            its name for messages.
        addresses: the inference and management addresses of a server on this machine.
    """

    handler: str
    check_config: Callable[[Path, str], None]
    addresses: Callable[[], tuple[str, str]]


def addresses() -> tuple[str, str]:
    """Return the inference and management addresses of the running server, or TorchServe's defaults."""
    server = click.get_current_context().find_object(ServerSide)
    if server is not None:
        return server.addresses()
    inference, management = ADDRESSES.values()
    return inference, management
