"""A Python or a torch that interpool was not tested with: refused, unless somebody wants to try it.

What can be looked at without running models is: the private names and symbols, in a process of its own,
since that imports torch. Layouts of classes were compared with torch's headers when interpool was built.
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
    """Go on only with versions that interpool was tested with, or where that is wanted and all is there.

    Args:
        interposer: interpool's library for this torch.

    Raises:
        InterpreterStartError: it is not to go on; says what of both was looked at.
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
        problems = [f"the process that looks at them {error}"]
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
    """What is here that interpool was not tested with, such as ``torch 2.99.0``."""
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
