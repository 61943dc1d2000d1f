"""The archiver's subcommands of ``interpool``.

InterpoolError goes up to the command group, which prints it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from interpool.archiver_ext.commands.archive import archive_command
from interpool.archiver_ext.commands.inspect import inspect_command
from interpool.archiver_ext.commands.pack import pack_command, plan_command
from interpool.archiver_ext.commands.verify import sign_command, verify_command
from interpool.archiver_ext.commands.why import why_command

if TYPE_CHECKING:
    import click

commands: list[click.Command] = [
    plan_command,
    pack_command,
    why_command,
    inspect_command,
    verify_command,
    sign_command,
    archive_command,
]
for _command in commands:
    # As the group's, also when one is called by itself: click keeps what it was called with first.
    _command.context_settings.setdefault("help_option_names", ["-h", "--help"])
