"""The help of ``interpool serve``: its own options and variables. TorchServe prints that of its own flags."""

from __future__ import annotations

import re
from typing import Any

import click

_OF_OTHER_COMMANDS = {"INTERPOOL_KEY_PASSWORD", "INTERPOOL_PREPARED"}  # sign's, and C++ programs'
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_ONLY_A_LINK = re.compile(rf" \({_LINK.pattern}\)")


class ServeCommand(click.Command):
    """A command whose help has the variables between the options and the examples."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, and then the variables."""
        super().format_options(ctx, formatter)
        with formatter.section("Environment variables (in full: docs/settings.md)"):
            formatter.write_dl(variables())


def variables() -> list[tuple[str, str]]:
    """Each variable that ``interpool serve`` and its pools read, and a line on it."""
    from interpool.handler.config import HostSettings
    from interpool.handler.variables import OtherVariables

    return [
        (name, _line(field))
        for settings in (HostSettings, OtherVariables)
        for name, field in settings.model_json_schema()["properties"].items()
        if name not in _OF_OTHER_COMMANDS
    ]


def _line(field: dict[str, Any]) -> str:
    """The first sentence of a description in Markdown, and the default."""
    plain = _LINK.sub(r"\1", _ONLY_A_LINK.sub("", field["description"]))
    sentence = plain.partition(". ")[0].removesuffix(".")
    default = field.get("default_text") or field["default"]
    shown = f"{default:g}" if isinstance(default, float | int) else default
    return f"{sentence}  [default: {shown}]".replace("`", "")
