"""Prepares a private interpreter, right after ``loader.py`` made imports safe."""

from __future__ import annotations

import os
from typing import Any, NoReturn

import _interpool

# Among the arguments of _posixsubprocess.fork_exec, from Python 3.11 to 3.13.
_PREEXEC_FN = -2


def install() -> None:
    """What makes Python code safe in here: ctypes, fork, sources, torch's settings; and torch."""
    _route_ctypes()
    _refuse_fork()
    import site

    site.main()
    import torch  # noqa: F401  (each interpreter has its own from the start)

    from interpool.native.inside import inductor, sources
    from interpool.native.inside import process_guards as settings

    sources.install()  # after torch's thousand imports, for which nobody can have given a source
    inductor.install()
    settings.install()


def _route_ctypes() -> None:
    import ctypes

    open_stock = ctypes._dlopen  # type: ignore[attr-defined]

    def open_private(name: Any, mode: int = ctypes.DEFAULT_MODE) -> int:
        if name is None:
            return open_stock(name, mode)  # type: ignore[no-any-return]
        path = os.fsdecode(name)
        try:
            copy = _interpool.load_library(path, mode)
        except ImportError as error:  # no private copy could be made
            raise OSError(str(error)) from error
        # Names of a private copy would shadow those of another interpreter's.
        return open_stock(copy, mode if copy == path else ctypes.RTLD_LOCAL)  # type: ignore[no-any-return]

    ctypes._dlopen = open_private  # type: ignore[attr-defined]


def _refuse_fork() -> None:
    """Leave no way to run Python in a forked child; starting other programs is no harm."""
    import _posixsubprocess

    def refuse() -> NoReturn:
        raise RuntimeError(
            "fork inside a private interpreter would copy the other interpreters' locks in the state "
            "that they happen to be in; use subprocess, or multiprocessing with the 'spawn' method."
        )

    os.fork = refuse
    os.forkpty = refuse
    fork_exec = _posixsubprocess.fork_exec

    def fork_exec_only(*args: Any) -> int:
        if args[_PREEXEC_FN] is not None:
            raise RuntimeError(
                "a preexec_fn would run after a fork inside a private interpreter, where the other "
                "interpreters' locks are in the state that they happened to be in; use subprocess's "
                "start_new_session, process_group, user, group, umask or pass_fds instead."
            )
        return fork_exec(*args)

    _posixsubprocess.fork_exec = fork_exec_only


def say_goodbye(_nothing: object) -> None:
    """Before the process ends: what a Python does first when it ends in order."""
    import atexit
    import sys

    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
