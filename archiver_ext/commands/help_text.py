"""What the help of all commands has in common."""

from __future__ import annotations

from typing import Any, Final

CONTEXT_SETTINGS: Final[dict[str, Any]] = {"help_option_names": ["-h", "--help"], "show_default": True}
"""The settings of every command. Click writes ``[default: …]`` itself, in parentheses for a computed one."""
REPEATABLE: Final = "; may be repeated"
"""The end of the help of an option that may be given several times."""


def examples(*commands: str) -> str:
    """Return an epilog that shows command lines.

    Args:
        commands: each is shown as it is, however narrow the terminal is; a long one may have several lines.
    """
    lines = [line for command in commands for line in command.splitlines()]
    return "\n  ".join(["\b\nExamples:", *lines])
