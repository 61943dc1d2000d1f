"""Prepares a private interpreter, right after ``loader.py`` made imports safe."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NoReturn

import _interpool
from interpool.native.inside.refusals import refused
from interpool.native.upstream.cpython_private import (
    PREEXEC_ARGUMENT,
    replace_dlopen,
    replace_fork_exec,
    run_exit_functions,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def install() -> None:
    """Make this interpreter safe to share a process with others, and import torch."""
    _route_ctypes()
    _refuse_fork()
    import site

    site.main()
    from interpool.native.inside import lean_imports

    lean_imports.import_torch()  # a lease must not wait for it, and what follows imports it

    from interpool.native.inside import inductor, process_guards, registered_sources, weights

    registered_sources.install()  # after torch: none of its many modules can have been registered
    inductor.install()
    process_guards.install()
    weights.install()


def _route_ctypes() -> None:
    import ctypes

    def private(stock: Callable[..., int]) -> Callable[..., int]:
        def open_private(name: Any, mode: int = ctypes.DEFAULT_MODE) -> int:
            if name is None:
                return stock(name, mode)
            path = os.fsdecode(name)
            try:
                copy = _interpool.load_library(path, mode)
            except ImportError as error:  # no private copy could be made
                raise OSError(str(error)) from error
            # Names of a private copy would shadow those of another interpreter's.
            return stock(copy, mode if copy == path else ctypes.RTLD_LOCAL)

        return open_private

    replace_dlopen(private)


def _refuse_fork() -> None:
    """Leave no way to run Python in a forked child; other programs may still be started."""

    def refuse() -> NoReturn:
        raise RuntimeError(
            refused(
                "fork inside a private interpreter would copy the other interpreters' locks in the state "
                "that they happen to be in; use subprocess, or multiprocessing with the 'spawn' method."
            )
        )

    def exec_only(stock: Callable[..., int]) -> Callable[..., int]:
        def fork_exec(*args: Any) -> int:
            if args[PREEXEC_ARGUMENT] is not None:
                raise RuntimeError(
                    refused(
                        "a preexec_fn would run after a fork inside a private interpreter, where the other "
                        "interpreters' locks are in the state that they happened to be in; use subprocess's "
                        "start_new_session, process_group, user, group, umask or pass_fds instead."
                    )
                )
            return stock(*args)

        return fork_exec

    os.fork = refuse
    os.forkpty = refuse
    replace_fork_exec(exec_only)


def at_process_end(_nothing: object) -> None:
    """Run exit functions and flush the output, as a Python does first when it ends normally."""
    import sys

    run_exit_functions()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
