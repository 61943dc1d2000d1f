#!/usr/bin/env python3
"""Linker options that export the interposer's C++ names under the private prefix as well.

Private copies import ``ip_NAME`` for each ``NAME`` that the stock library imports. Only the
interposer answers to it, with any other library loaded and in any scope.
Called by CMake: ``aliases.py NM OUTPUT OBJECT...``.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PREFIX = "ip_"  # as interpool.native.provision.SYMBOL_PREFIX
OWN = ("_ZN9interpool", "_ZNK9interpool")


def main(nm: str, output: str, *objects: str) -> None:
    """Writes a response file for the linker: one ``--defsym`` for each strong definition."""
    command = [nm, "--defined-only", "--extern-only", "--format=posix", *objects]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    names = set()
    for line in listing.splitlines():
        fields = line.split()
        if len(fields) >= 2 and fields[1] == "T" and fields[0].startswith("_Z"):
            names.add(fields[0])
    wanted = sorted(name for name in names if not name.startswith(OWN))
    Path(output).write_text("".join(f"--defsym={PREFIX}{name}={name}\n" for name in wanted))


if __name__ == "__main__":
    main(*sys.argv[1:])
