"""The help of ``interpool serve``: its own options and variables. TorchServe prints that of its own flags."""

from __future__ import annotations

from typing import Final

import click

VARIABLES: Final = {
    "INTERPOOL_INTERPRETERS": "interpreters of a pool  [default: (cores)]",
    "INTERPOOL_CEILING": "the most interpreters that a pool may grow to  [default: (4 times the cores)]",
    "INTERPOOL_SHARE": "the most interpreters that one model may have at once: a number, or a part, as 0.5",
    "INTERPOOL_MEMORY_MB": "memory that a pool's process may have",
    "INTERPOOL_CALL_LIMIT_S": "seconds that a model's code may take for a batch",
    "INTERPOOL_IDLE_MODEL_S": "seconds until an idle model is kept by one interpreter only  [default: 600]",
    "INTERPOOL_IDLE_EXIT_S": "seconds that a pool stays after its last worker left  [default: 30]",
    "INTERPOOL_START_AHEAD": "1: start the pool with the server; 0: with its first worker  [default: 1]",
    "INTERPOOL_DRAIN_S": "with --foreground: seconds from SIGTERM to the end of the server  [default: 0]",
    "INTERPOOL_ORDINARY_ARCHIVES": "who serves archives made without it: stock or pool  [default: stock]",
    "INTERPOOL_STOCK_ARCHIVES": "allow or refuse such archives  [default: (refuse if there are keys)]",
    "INTERPOOL_SIGNATURE_KEYS": "public keys, PATH:PATH: serve only archives that one of them has signed",
    "INTERPOOL_VERIFY": "what is checked of each archive: digests or structure  [default: digests]",
    "INTERPOOL_SELF_TEST": "1: serve only models that pass their archive's self-test  [default: 0]",
    "INTERPOOL_DIRECT_ADDRESS": "as --direct",
    "INTERPOOL_DIRECT_ACCESS_LOG": "1: log each request at the direct address  [default: 0]",
    "INTERPOOL_METRICS_ADDRESS": "HOST:PORT at which to serve metrics for Prometheus",
    "INTERPOOL_LOG": "form of the pool's log: text or json  [default: text]",
    "INTERPOOL_LOG_LEVEL": "debug, info, warning or error  [default: info]",
    "INTERPOOL_LOG_TO": "file, or TorchServe's stdout  [default: file]",
    "INTERPOOL_LOG_MB": "size of the log file above which another one is begun  [default: 100]",
    "INTERPOOL_LOG_FILES": "how many earlier log files are kept  [default: 5]",
    "INTERPOOL_RUNTIME_DIR": "directory of sockets and locks  [default: (/tmp/interpool-UID)]",
    "INTERPOOL_CACHE": "directory of private copies  [default: (~/.cache/interpool)]",
    "INTERPOOL_CACHE_DAYS": "days after which unused copies are removed; 0: never  [default: 14]",
    "INTERPOOL_CACHE_GB": "size above which unused copies are removed sooner; 0: any  [default: 10]",
    "INTERPOOL_FULL_IMPORT": "1: import all of torch into every interpreter  [default: 0]",
    "INTERPOOL_UNTESTED": "1: use a Python or torch that interpool was not tested with  [default: 0]",
    "INTERPOOL_LIBPYTHON": "the shared libpython, if it is in an unusual place",
}
"""The variables that ``interpool serve`` and its pools read; docs/operations.md describes them in full."""


class ServeCommand(click.Command):
    """A command whose help has the variables between the options and the examples."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, and then the variables."""
        super().format_options(ctx, formatter)
        with formatter.section("Environment variables, described in docs/operations.md"):
            formatter.write_dl(list(VARIABLES.items()))
