"""The list of the archiver's subcommands of ``interpool``.

The command group prints InterpoolError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from interpool.archiver_ext.commands.archive import archive_command
from interpool.archiver_ext.commands.help_text import CONTEXT_SETTINGS
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
    # Set the group's settings here, too: click keeps the help options of the first call.
    _command.context_settings = CONTEXT_SETTINGS
