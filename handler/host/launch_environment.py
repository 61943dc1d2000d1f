"""What environment TorchServe gives its workers, compared with what this process was started with."""

from __future__ import annotations

import os
import re

from interpool.handler.frontend import shim

_SHELL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")  # others do not come through a launcher's shell
# What TorchServe, and the shell of a launcher, set for each worker.
_OF_EACH_WORKER = frozenset({"PYTHONPATH", "PWD", "OLDPWD", "SHLVL", "_"})


def was_started_like(shim_pid: int) -> bool:
    """Whether this process was started with what TorchServe has given a worker's environment."""
    try:
        return _given(os.getpid()) == _given(shim_pid)
    except OSError:
        return False


def _given(pid: int) -> set[tuple[str, str]]:
    return {
        (name, value)
        for name, value in shim.started_with(pid).items()
        if _SHELL_NAME.fullmatch(name) and name not in _OF_EACH_WORKER
    }
