"""Files that take long to make: made once for a test run, by the first of its processes that needs one."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from pathlib import Path

import pytest


def folder_of_run(config: pytest.Config, factory: pytest.TempPathFactory, name: str) -> Path:
    """A folder that all processes of this test run have, and no other run."""
    base = factory.getbasetemp()
    if hasattr(config, "workerinput"):  # xdist gives each of its processes a folder in the run's
        base = base.parent
    folder = base / name
    folder.mkdir(exist_ok=True)
    return folder


def made_once(target: Path, make: Callable[[], object]) -> Path:
    """The file ``target``, which ``make`` is to make, all at once, if no process has yet."""
    target.parent.mkdir(exist_ok=True)
    with target.with_name(f"{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            make()
    return target
