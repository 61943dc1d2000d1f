"""Compares the environment that TorchServe gives its workers with the one that this process started with."""

from __future__ import annotations

import os
import re

from interpool.handler.frontend import shim

_SHELL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")  # a launcher's shell passes no other names on
# The variables that TorchServe, or a launcher's shell, sets for each worker.
_OF_EACH_WORKER = frozenset({"PYTHONPATH", "PWD", "OLDPWD", "SHLVL", "_"})


def was_started_like(shim_pid: int) -> bool:
    """Whether this process was started with the environment that TorchServe has given this shim.

    Variables that differ for each worker do not count. False if the shim's environment cannot be read.
    """
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
