"""Runs a module of the benchmarks as a program: python scripts/benchmarks MODULE [arguments]

``scripts/bench NAME`` runs ``NAME.benchmark``. Other modules are processes that benchmarks start, write pages
or draw figures. Wherever they are started, they import each other as ``benchmarks.…``, and what is in
scripts/support. This folder itself is no place to import from, so that no name in it hides another module.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[1]

if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python scripts/benchmarks MODULE [arguments], such as: rest.benchmark --help")
    sys.path[:1] = [str(SCRIPTS), str(SCRIPTS / "support")]  # the first one is this folder
    runpy.run_module(f"benchmarks.{sys.argv.pop(1)}", run_name="__main__", alter_sys=True)
