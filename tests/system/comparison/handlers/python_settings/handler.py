"""What Python's own environment variables and the locale decide."""

import locale
import sys
import warnings


def handle(data, context):
    if data is None:
        return None
    return [
        {
            "locale": locale.getpreferredencoding(False),
            "utf8 mode": sys.flags.utf8_mode,
            "bytecode": sys.dont_write_bytecode,
            "warnings": [str(entry[0]) for entry in warnings.filters],
            "flags": [sys.flags.optimize, sys.flags.hash_randomization, sys.flags.dev_mode],
        }
    ]
