"""The ``interpool`` command: each layer's subcommands in one place."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import Any

import click

from interpool.archiver_ext.commands.help_text import CONTEXT_SETTINGS
from interpool.archiver_ext.commands.json_output import print_error
from interpool.handler.commands import cache, doctor, exporter, paths, prepare, serve, status
from interpool.handler.commands.common import NOT_PACKED, NOT_SERVED, OTHER, REFUSED, CommandFailed, fail
from interpool.handler.torchserve import running_addresses
from interpool.native.errors import ArchiveError, InterpoolError

_ERRORS_AS_JSON = "interpool.errors_as_json"
_OUTPUT_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
GROUPS = {
    "Pack": ("plan", "pack", "sign", "verify", "archive"),
    "Serve": ("serve", "run", "exporter"),
    "Look": ("doctor", "status", "inspect", "why", "cache"),
    "Set up": ("home", "handler", "prepare", "cmake-dir"),
}
"""All commands, as ``--help`` lists them: in the order in which people need them."""


class Commands(click.Group):
    """Imports the archiver's subcommands, and what they need, only when they are asked for."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run the command line; if standard output takes no more, say so and exit."""
        _open_closed_streams()
        try:
            return super().main(*args, **extra)
        except OSError as error:
            if error.errno not in _OUTPUT_FULL:
                raise
            said = f"standard output cannot be written: {error.strerror}. Make room, or print elsewhere"
            click.echo(f"interpool: {said}", err=True)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for what is still buffered
            sys.exit(OTHER)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, sorted."""
        return sorted({*super().list_commands(ctx), "run", *self._archiver()})

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands in their groups."""
        width = max(map(len, self.list_commands(ctx)))
        for title, names in GROUPS.items():
            commands = [self.get_command(ctx, name) for name in names]
            with formatter.section(title):
                formatter.write_dl(
                    [
                        (f"{command.name:{width}}", str(command.short_help))
                        for command in commands
                        if command is not None
                    ]
                )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Note whether errors are to be JSON: before what may be wrong with the subcommand's own options."""
        ctx.meta[_ERRORS_AS_JSON] = "--json" in args and args[0] != "serve"  # which passes its options on
        return super().parse_args(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The subcommand of that name."""
        own = super().get_command(ctx, cmd_name)
        if cmd_name == "run":  # needs the extra `direct`
            from interpool.handler.run.command import run

            return run
        if own is None:
            ctx.obj = _server_side()
        return own or self._archiver().get(cmd_name)

    def invoke(self, ctx: click.Context) -> Any:
        """Run it; an error of interpool's, or of a file, is a message and an exit status, no traceback."""
        try:
            _require_working_directory()
            return super().invoke(ctx)
        except click.ClickException as error:
            if ctx.meta[_ERRORS_AS_JSON]:
                print_error(ctx, status=error.exit_code, message=error.format_message())
            raise
        except CommandFailed as error:
            said, status, facts = str(error), error.status, {"message": str(error)}
        except InterpoolError as error:
            said, status, facts = str(error), exit_status(error), _facts_of(error)
        except OSError as error:
            if error.filename is None:
                raise
            said = f"cannot use {error.filename}: {error.strerror}. Correct the path, or its permissions"
            status, facts = OTHER, {"message": said}
        if ctx.meta[_ERRORS_AS_JSON]:
            print_error(ctx, status=status, **facts)
        click.echo(f"interpool: {said}", err=True)
        sys.exit(status)

    @staticmethod
    def _archiver() -> dict[str, click.Command]:
        from interpool.archiver_ext.commands.subcommands import commands

        return {str(command.name): command for command in commands}


def _open_closed_streams() -> None:
    """Open /dev/null in place of a closed standard stream: else the next file would get its descriptor."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(descriptor, True)
            setattr(sys, name, open(descriptor, mode))  # noqa: SIM115 - it stays open


def _require_working_directory() -> None:
    """Fail if the working directory is gone, because torch's libraries end a process then."""
    try:
        os.getcwd()
    except FileNotFoundError:
        fail("the working directory has been removed: change to another one", OTHER)


# 2 is click's own.
EXIT_STATUS = """\b
Exit status:
  0  done
  1  something else went wrong, or `doctor` says FAIL (with WARN alone it is 0)
  2  the command line makes no sense
  3  the archive is refused: damaged, unsigned, not what its manifest says, ...
  4  what was asked for cannot be packed, or wrapped
  5  the serving side: no Java, no overlay, bad settings, ...
"""


def exit_status(error: InterpoolError) -> int:
    """The exit status of an error; no other code decides it."""
    from interpool.archiver_ext.errors import PackError
    from interpool.handler.errors import ServeError

    table = ((ArchiveError, REFUSED), (PackError, NOT_PACKED), (ServeError, NOT_SERVED))
    return next((status for kind, status in table if isinstance(error, kind)), OTHER)


def _facts_of(error: InterpoolError) -> dict[str, str]:
    """The parts of an error's text."""
    from interpool.archiver_ext.errors import PackError

    if isinstance(error, PackError):
        return {"message": error.message, "traceback": error.user_traceback}
    if isinstance(error, ArchiveError):
        return {"message": error.message, "rule": error.rule}
    return {"message": str(error)}


def _server_side() -> object:
    """What the archiver, a layer below, asks its context for."""
    from interpool.archiver_ext.commands.server_side import ServerSide

    def check_config(file: Path, shown_as: str) -> None:
        from interpool.handler.config import ModelSettings

        ModelSettings.of_file(file, shown_as)

    return ServerSide(str(paths.handler_file()), check_config, running_addresses)


@click.group("interpool", cls=Commands, epilog=EXIT_STATUS, context_settings=CONTEXT_SETTINGS)
@click.version_option(package_name="interpool")
def main() -> None:
    """Serve ordinary PyTorch models from one process of many private interpreters.

    Start with `interpool doctor`. `interpool COMMAND -h` shows a command's options and examples.
    """


_COMMANDS: tuple[click.Command, ...] = (
    serve.serve,
    exporter.exporter,
    paths.home,
    paths.handler,
    paths.cmake_dir,
    status.status,
    prepare.prepare,
    cache.cache,
    doctor.doctor,
)
for _command in _COMMANDS:
    main.add_command(_command)
