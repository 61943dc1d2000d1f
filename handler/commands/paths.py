"""The commands that print one path: ``interpool home``, ``handler`` and ``cmake-dir``."""

from __future__ import annotations

from pathlib import Path

import click

from interpool.archiver_ext.commands.json_output import JSON
from interpool.handler import interpool_handler
from interpool.handler.commands.common import print_path


@click.command(short_help="Print the overlay's path, for TS_MODEL_SERVER_HOME")
@JSON
def home(as_json: bool) -> None:
    """Print the overlay's path, for TS_MODEL_SERVER_HOME."""
    from interpool.handler.frontend.overlay import overlay

    print_path(overlay(), as_json)


@click.command(short_help="Print the handler file's path, for torch-model-archiver")
@JSON
def handler(as_json: bool) -> None:
    """Print the handler file's path, for torch-model-archiver --handler."""
    print_path(handler_file(), as_json)


@click.command("cmake-dir", short_help="Print the folder of interpool-config.cmake")
@JSON
def cmake_dir(as_json: bool) -> None:
    """Print the folder of interpool-config.cmake, for CMake's interpool_DIR."""
    import interpool.native

    print_path(Path(str(interpool.native.__file__)).parent / "lib" / "cmake" / "interpool", as_json)


def handler_file() -> Path:
    """The handler file of hermetic archives."""
    return Path(str(interpool_handler.__file__)).resolve()
