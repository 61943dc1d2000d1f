"""``--json``, the same for every command that prints facts: one JSON value on standard output.

If the command fails, that is an object whose ``error`` says why; the ``interpool`` command prints it.
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
    """Print what a command found."""
    click.echo(json.dumps(facts))


def know(facts: dict[str, Any]) -> None:
    """Note what is to stand beside ``error``, as the command is going to fail."""
    click.get_current_context().meta[_KNOWN] = facts


def print_error(context: click.Context, *, status: int, **facts: str) -> None:
    """Print why a command failed, beside what it knew; what is empty is left out."""
    said = {name: text for name, text in facts.items() if text}
    print_json({**context.meta.get(_KNOWN, {}), "error": {"status": status, **said}})
