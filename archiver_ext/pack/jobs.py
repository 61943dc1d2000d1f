"""How pack hands a job to one of its child processes, and gets its result.

A job and its result are JSON files in a working directory, so that whatever the user's
code prints, reads or breaks cannot mix with them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Literal

from interpool.archiver_ext.errors import PackError

if TYPE_CHECKING:
    from pathlib import Path

# torch names the directory in the zip after the file: always this one.
ARCHIVE_NAME = "archive.ptpkg"

# Python waits for threads that are no daemons; idle pools of threads end by themselves at once.
_GRACE_SECONDS = 2.0

Step = Literal["building", "trial_load"]


def run_step(step: Step, workdir: Path, job: dict[str, Any], cwd: Path) -> dict[str, Any]:
    """Run the child module ``step`` on ``job`` and return its result.

    Args:
        step: a module of this package with a ``main`` that calls read_job and write_result.
        workdir: where the files lie; the child's argument.
        job: JSON-able.
        cwd: the child's working directory.

    Raises:
        PackError: the child died without a result.
    """
    _path(workdir, step, "job").write_text(json.dumps(job), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-P", "-m", f"interpool.archiver_ext.{step}", str(workdir)],
        stdin=subprocess.DEVNULL,
        # What the user's code prints is not pack's output.
        stdout=2,
        # Sets of strings are pickled in hash order: equal models must give equal bytes.
        env={**os.environ, "PYTHONHASHSEED": "0"},
        cwd=cwd,
        check=False,
    )
    try:
        text = _path(workdir, step, "result").read_text(encoding="utf-8")
    except OSError:
        doing = "building" if step == "building" else "loading"
        raise PackError(
            f"the process that was {doing} the model {_how_it_ended(done.returncode)}; "
            "its own output above says more"
        ) from None
    result: dict[str, Any] = json.loads(text)
    return result


def read_job(step: Step, workdir: Path) -> dict[str, Any]:
    """The child's job."""
    job: dict[str, Any] = json.loads(_path(workdir, step, "job").read_text(encoding="utf-8"))
    return job


def write_result(step: Step, workdir: Path, result: dict[str, Any]) -> None:
    """Hand the child's result back; the last thing that the child does."""
    _path(workdir, step, "result").write_text(json.dumps(result), encoding="utf-8")


def leave() -> None:
    """Let the child end, its result written, even if threads that the user's code started never do."""

    def end() -> None:
        time.sleep(_GRACE_SECONDS)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)

    threading.Thread(target=end, daemon=True).start()


def _path(workdir: Path, step: Step, what: str) -> Path:
    return workdir / f"{step}-{what}.json"


def _how_it_ended(code: int) -> str:
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended early with exit code {code}"
