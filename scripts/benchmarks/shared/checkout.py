"""Where things lie in the checkout, and how modules of the benchmarks become processes."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SCRIPTS = ROOT / "scripts"
SUPPORT = SCRIPTS / "support"
BENCHMARKS = SCRIPTS / "benchmarks"


def program(
    module: str, *arguments: str, flags: tuple[str, ...] = (), python: Path | None = None
) -> list[str]:
    """The command that runs a module, named as in ``rest.benchmark``, in a process of its own.

    Args:
        flags: Python's own.
        python: another program than this process's.
    """
    return [str(python or sys.executable), *flags, str(BENCHMARKS), module, *arguments]
