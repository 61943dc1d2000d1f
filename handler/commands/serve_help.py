"""The help of ``interpool serve``: its own options and variables. TorchServe prints that of its own flags."""

from __future__ import annotations

import click

_OF_OTHER_COMMANDS = {"INTERPOOL_KEY_PASSWORD", "INTERPOOL_PREPARED"}  # sign's, and C++ programs'


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
    from interpool.handler.described import described, plain
    from interpool.handler.variables import OtherVariables

    return [
        (setting.name, f"{setting.summary}  [default: {plain(setting.default)}]")
        for settings in (HostSettings, OtherVariables)
        for setting in described(settings)
        if setting.name not in _OF_OTHER_COMMANDS
    ]
