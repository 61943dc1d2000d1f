"""The archiver's subcommands of ``interpool``: options and output.

May be imported by the ``interpool`` command only. The other folders do the work.
"""
