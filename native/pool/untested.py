"""Refuses versions of Python and torch with which interpool was not tested, unless the user allows them.

Only private names and symbols can be checked without running models. A child process checks them, because the
check imports torch. The build of interpool compares class layouts with torch's headers.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from interpool.native.child_process import ChildError, Program, run, serve
from interpool.native.errors import InterpreterStartError
from interpool.native.provision.torch_parts import UNTESTED
from interpool.native.upstream import checks
from interpool.native.upstream.requirements import satisfies, tested_pythons, unfit_python

if TYPE_CHECKING:
    from collections.abc import Iterator

_SECONDS = 120


@dataclass(frozen=True)
class _Job:
    interposer: str


@dataclass(frozen=True)
class _Problems:
    problems: list[str]


_PROGRAM = Program("interpool.native.pool.untested", _Job, _Problems)


def refuse_untested(interposer: Path) -> None:
    """Raise unless the present versions are tested, or the user allows them and the check passes.

    Args:
        interposer: interpool's library for this torch.

    Raises:
        InterpreterStartError: otherwise; says what was checked.
    """
    if unfit := unfit_python():
        raise InterpreterStartError(
            f"CPython {platform.python_version()} ({sys.executable}) is {unfit}. "
            "Use an ordinary build (interpool doctor names the versions)"
        )
    untested = untested_versions()
    if not untested:
        return
    try:
        problems = run(_PROGRAM, _Job(str(interposer)), timeout=_SECONDS).problems
    except ChildError as error:
        problems = [f"the process that checks them {error}"]
    if not problems and os.environ.get(UNTESTED) == "1":
        return
    found = "; ".join(problems) or "all private names and symbols are there"
    advice = "use versions that it was tested with (interpool doctor names them)"
    if not problems:
        advice += f", or set {UNTESTED}=1 to try"
    raise InterpreterStartError(
        f"interpool was not tested with {' and '.join(untested)}. Looked at: {found}. What to do: {advice}"
    )


def untested_versions() -> list[str]:
    """Return the present versions with which interpool was not tested, such as ``torch 2.99.0``."""
    found = []
    pythons = tested_pythons()
    if pythons and f"{sys.version_info.major}.{sys.version_info.minor}" not in pythons:
        found.append(f"CPython {platform.python_version()}")
    torch = importlib.metadata.version("torch")
    if not satisfies("torch", torch):
        found.append(f"torch {torch}")
    return found


def _look(job: _Job) -> Iterator[_Problems]:
    yield _Problems(checks.check_all(Path(job.interposer))[1])


if __name__ == "__main__":
    serve(_PROGRAM, _look)
