"""The option ``--json`` of all commands: one JSON object on standard output.

If a command fails, its ``error`` has the reason; the ``interpool`` command prints it.
"""

from __future__ import annotations

import json
from typing import Any, Final

import click

JSON: Final = click.option(
    "--json", "as_json", is_flag=True, help="print the facts, or the error, as one JSON object"
)
"""The option."""
_KNOWN = "interpool.known"


def print_json(facts: object) -> None:
    """Print a command's result."""
    click.echo(json.dumps(facts))


def record_facts(facts: dict[str, Any]) -> None:
    """Record facts to print with ``error``, because the command is about to fail."""
    click.get_current_context().meta[_KNOWN] = facts


def print_error(context: click.Context, *, status: int, **facts: str) -> None:
    """Print why a command failed, with the recorded facts; empty facts are omitted.

    Args:
        context: of the command.
        status: its exit status.
        facts: texts by key.
    """
    said = {name: text for name, text in facts.items() if text}
    print_json({**context.meta.get(_KNOWN, {}), "error": {"status": status, **said}})
