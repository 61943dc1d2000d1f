"""The serving side's subcommands of ``interpool``: their options and their output.

Each command imports what it needs when it is called. So the other commands, and ``--help``, start without
that.
"""
