"""The serving side's subcommands of ``interpool``: options, and what is printed.

Each imports what it needs when it is called, so that the others, and ``--help``, start without that.
"""
