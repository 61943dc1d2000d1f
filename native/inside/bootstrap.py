"""Prepares a private interpreter, after ``loader.py`` has made imports safe."""

from __future__ import annotations

import gc
import os
import posix
from typing import TYPE_CHECKING, Any, NoReturn

import _interpool
from interpool.native.inside.refusals import refused
from interpool.native.upstream.cpython_private import (
    PREEXEC_ARGUMENT,
    replace_create_interpreter,
    replace_dlopen,
    replace_fork_exec,
    run_exit_functions,
)

if TYPE_CHECKING:
    from collections.abc import Callable


_STACK = 8 << 20


def install() -> None:
    """Make this interpreter safe to share a process with others, and import torch."""
    _keep_libraries_local()
    _route_ctypes()
    _refuse_fork()
    _refuse_subinterpreters()
    _size_stacks()
    # Nothing that is imported here is garbage, and collections would take an eighth of the start-up time.
    gc.disable()
    import site

    site.main()
    from interpool.native.inside import lean_imports

    lean_imports.import_torch()  # before the first lease, and before the imports below, which need it

    from interpool.native.inside import (
        exits,
        inductor,
        operators,
        process_guards,
        registered_sources,
        weights,
    )

    registered_sources.install()  # after torch, whose modules cannot be registered sources
    inductor.install()
    operators.install()
    exits.install()
    process_guards.install()
    weights.install()
    gc.enable()


def _keep_libraries_local() -> None:
    """Make ``sys.setdlopenflags`` ineffective, so that no private library enters the global symbol scope.

    Symbols of one interpreter's libpython would otherwise resolve for all libraries that load later.
    """
    import sys

    flags = sys.getdlopenflags()

    def setdlopenflags(requested: int, /) -> None:
        nonlocal flags
        flags = int(requested)

    sys.setdlopenflags = setdlopenflags
    sys.getdlopenflags = lambda: flags


def _size_stacks() -> None:
    """Give the model's threads stacks of Linux's default size or more, and ignore ``ulimit -s``.

    Recursion through C could overflow a smaller one before it meets the recursion limit.
    """
    import threading

    stock = threading.stack_size

    def stack_size(size: int = 0, /) -> int:
        """Override of ``threading.stack_size``."""
        before = stock(size)  # raises if it is no size
        if size < _STACK:
            stock(_STACK)
        return before

    threading.stack_size = stack_size
    stack_size()


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
            # Symbols of a private copy must not shadow another interpreter's.
            return stock(copy, mode if copy == path else ctypes.RTLD_LOCAL)

        return open_private

    replace_dlopen(private)


def _refuse_fork() -> None:
    """Refuse every call that runs Python in a forked child; starting other programs stays possible."""

    def refuse() -> NoReturn:
        raise RuntimeError(
            refused(
                "fork inside a private interpreter would copy the other interpreters' locks in the state "
                "that they happen to be in. Use subprocess, or multiprocessing with the 'spawn' method."
            )
        )

    def exec_only(stock: Callable[..., int]) -> Callable[..., int]:
        def fork_exec(*args: Any) -> int:
            if args[PREEXEC_ARGUMENT] is not None:
                raise RuntimeError(
                    refused(
                        "a preexec_fn would run after a fork inside a private interpreter, with the other "
                        "interpreters' locks in the state that they happened to be in. Use subprocess's "
                        "start_new_session, process_group, user, group, umask or pass_fds instead."
                    )
                )
            return stock(*args)

        return fork_exec

    # ``os`` and other modules import them from ``posix``.
    os.fork = posix.fork = refuse
    os.forkpty = posix.forkpty = refuse
    replace_fork_exec(exec_only)


def _refuse_subinterpreters() -> None:
    """Refuse subinterpreters: their imports would load the host's extension modules, not private copies."""

    def create(*_args: Any, **_kwargs: Any) -> NoReturn:
        raise RuntimeError(
            refused(
                "a subinterpreter inside a private interpreter would load extension modules that belong to "
                "another Python of this process; use threads, or processes by multiprocessing."
            )
        )

    replace_create_interpreter(create)


def at_process_end(_nothing: object) -> None:
    """Run exit functions and flush the standard streams, as Python does when it ends normally."""
    import sys

    run_exit_functions()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
