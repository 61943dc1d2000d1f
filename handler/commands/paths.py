"""The commands that print one path: ``interpool home``, ``handler`` and ``cmake-dir``."""

from __future__ import annotations

from pathlib import Path

import click

from interpool.archiver_ext.commands.help_text import examples
from interpool.archiver_ext.commands.json_output import JSON
from interpool.handler import interpool_handler
from interpool.handler.commands.common import print_path


@click.command(
    short_help="Print the overlay's path, for TS_MODEL_SERVER_HOME",
    epilog=examples('export TS_MODEL_SERVER_HOME="$(interpool home)"'),
)
@JSON
def home(as_json: bool) -> None:
    """Print the overlay's path, for TS_MODEL_SERVER_HOME.

    The overlay is made if it is not there. A plain `torchserve` with this variable uses the pool.
    """
    from interpool.handler.frontend.overlay import overlay

    print_path(overlay(), as_json)


@click.command(
    short_help="Print the handler file's path, for torch-model-archiver",
    epilog=examples(
        "torch-model-archiver --model-name m --version 1.0 --export-path . \\\n"
        '  --serialized-file m.ptpkg --handler "$(interpool handler)"'
    ),
)
@JSON
def handler(as_json: bool) -> None:
    """Print the handler file's path, for torch-model-archiver --handler.

    It is the handler of a hermetic archive. `interpool archive` uses it by default.
    """
    print_path(handler_file(), as_json)


@click.command(
    "cmake-dir",
    short_help="Print the folder of interpool-config.cmake",
    epilog=examples('cmake -S . -B build -Dinterpool_DIR="$(interpool cmake-dir)"'),
)
@JSON
def cmake_dir(as_json: bool) -> None:
    """Print the folder of interpool-config.cmake, for CMake's interpool_DIR."""
    import interpool.native

    print_path(Path(str(interpool.native.__file__)).parent / "lib" / "cmake" / "interpool", as_json)


def handler_file() -> Path:
    """The handler file of hermetic archives."""
    return Path(str(interpool_handler.__file__)).resolve()
