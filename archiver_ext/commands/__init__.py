"""The archiver's subcommands of ``interpool``: options, and what is printed.

May be imported by the ``interpool`` command only. What a subcommand does stands in the other folders.
"""
