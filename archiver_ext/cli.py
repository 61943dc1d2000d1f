"""The archiver's subcommands of ``interpool``.

InterpoolError goes up to the command group, which prints it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from interpool.archiver_ext.archive_command import archive_command
from interpool.archiver_ext.inspect_command import inspect_command
from interpool.archiver_ext.pack_command import pack_command, plan_command
from interpool.archiver_ext.verify_command import sign_command, verify_command
from interpool.archiver_ext.why_command import why_command

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
