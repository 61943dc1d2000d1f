"""Isolates what a model would have to itself in a process of its own, for each model of an interpreter.

A stock worker's process has one model. If that model changes ``os.environ``, the root logger, ``sys.stdout``
or the filters of warnings, it affects no other model. In an interpreter each model has a *view*: its values
of all these are in place while it is served. They are exchanged when another model is served, not with every
call. The working directory is the calling thread's own.

A view begins with the environment with which the process was started, even if other models have changed
theirs. State that the C library keeps once for the process is not exchanged. So C code and child processes of
all models see what one model writes to ``os.environ``; Python code sees the values of its own model.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from interpool.handler.backend import own_changes, random_state, stdio
from interpool.native.inside import exits, import_reads, module_scope
from interpool.native.upstream.cpython_private import (
    environ_data,
    event_loop_policies,
    globals_of,
    multiprocessing_config,
    replace_environ,
    replace_warnings_filters,
    set_start_method,
    start_method,
)
from interpool.native.upstream.torch_private import backend_settings, replace_backend_settings

if TYPE_CHECKING:
    from asyncio import DefaultEventLoopPolicy, get_event_loop_policy, set_event_loop_policy
else:
    DefaultEventLoopPolicy, get_event_loop_policy, set_event_loop_policy = event_loop_policies()


class _Kept(NamedTuple):
    """Something that is exchanged: functions that read it and put it in place."""

    get: Callable[[], Any]
    put: Callable[[Any], object]


def _logging() -> tuple[Any, ...]:
    root = logging.getLogger()
    return root.level, root.handlers[:], root.filters[:], logging.root.manager.disable


def _put_logging(state: tuple[Any, ...]) -> None:
    root = logging.getLogger()
    level, root.handlers[:], root.filters[:], disabled = state
    if (root.level, logging.root.manager.disable) != (level, disabled):
        logging.disable(disabled)
        root.setLevel(level)


def _put_gc(state: tuple[bool, tuple[int, int, int], int]) -> None:
    enabled, thresholds, flags = state
    (gc.enable if enabled else gc.disable)()
    gc.set_threshold(*thresholds)
    gc.set_debug(flags)


def _stack_size() -> int:
    size = threading.stack_size()  # this sets the default size
    threading.stack_size(size)
    return size


class _EventLoops(DefaultEventLoopPolicy):
    """Gives a call its model's event loop, and makes one if needed, as in the main thread of a worker."""

    def get_event_loop(self) -> asyncio.AbstractEventLoop:
        view = _served_here()
        if view is None:
            return super().get_event_loop()
        if view.loop is None and not view.loop_is_set:
            self.set_event_loop(self.new_event_loop())
        if view.loop is None:
            raise RuntimeError("There is no current event loop in this thread.")
        return view.loop

    def set_event_loop(self, loop: asyncio.AbstractEventLoop | None) -> None:
        view = _served_here()
        if view is None:
            super().set_event_loop(loop)
        else:
            view.loop, view.loop_is_set = loop, True


def _global(module: ModuleType, name: str) -> _Kept:
    return _item(vars(module), name)


def _item(contents: dict[str, Any], name: str) -> _Kept:
    return _Kept(partial(contents.get, name), partial(contents.__setitem__, name))


def _opener() -> Any:
    return globals_of("urllib.request").get("_opener")


def _put_opener(opener: Any) -> None:
    globals_of("urllib.request")["_opener"] = opener


_KEPT = (
    _global(sys, "stdin"),
    _global(sys, "stdout"),
    _global(sys, "stderr"),
    _global(sys, "dont_write_bytecode"),
    _global(os, "environ"),  # a model may bind it to a dict of its own
    # Python's library derives these from environment variables once.
    _global(tempfile, "tempdir"),
    _item(multiprocessing_config(), "tempdir"),
    _Kept(_opener, _put_opener),
    _Kept(environ_data, replace_environ),
    _Kept(stdio.attributes, stdio.put_attributes),
    _Kept(random_state.current, random_state.put),
    _Kept(_logging, _put_logging),
    _Kept(lambda: warnings.filters[:], replace_warnings_filters),
    _Kept(lambda: (gc.isenabled(), gc.get_threshold(), gc.get_debug()), _put_gc),
    _Kept(_stack_size, threading.stack_size),
    _Kept(sys.getrecursionlimit, sys.setrecursionlimit),
    _Kept(sys.getswitchinterval, sys.setswitchinterval),
    _Kept(sys.get_int_max_str_digits, sys.set_int_max_str_digits),
    _Kept(get_event_loop_policy, set_event_loop_policy),
    _Kept(start_method, set_start_method),
    _Kept(socket.getdefaulttimeout, socket.setdefaulttimeout),
    _Kept(backend_settings, replace_backend_settings),
    _Kept(torch.is_anomaly_enabled, lambda enabled: torch.set_anomaly_enabled(enabled, check_nan=False)),
)
_initial: tuple[Any, ...] = ()  # before any model
_initial_path: list[str] = []
_current: ProcessView | None = None
_calling_thread = 0  # which serves _current's call
_thread = threading.local()  # is_in_directory_of: the view whose directory it is in


def _served_here() -> ProcessView | None:
    return _current if threading.get_ident() == _calling_thread else None


def _undo_changes_of_neighbours() -> None:
    """Reset ``os.environ`` to what the process was started with, as for a worker of its own.

    An interpreter that starts after a load has read what other interpreters' models made of the environment.
    """
    try:
        entries = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return
    replace_environ(dict(entry.split(b"=", 1) for entry in entries if b"=" in entry))


class ProcessView:
    """One model's view, in this interpreter.

    Args:
        directory: the working directory of its first call; None: that of the thread.
        modules: its own modules; None: it has none under plain names.

    Attributes:
        loop: the event loop of its calls; None if there is none.
        loop_is_set: whether the loop was set, possibly to None.
    """

    def __init__(self, directory: str | None, modules: module_scope.ModuleScope | None = None) -> None:
        self.modules = modules
        self.loop: asyncio.AbstractEventLoop | None = None
        self.loop_is_set = False
        self._directory = directory  # of its latest call, at its end
        self._own_directory = directory or ""
        self._state: tuple[Any, ...] = ()
        self._path: list[str] = []  # its sys.path, if it has no modules of its own
        self._changes: tuple[own_changes.Changes, ...] = ()
        self._grad = True
        self._device: torch.device | None = None
        self._arguments: Sequence[str] = ()  # those of its latest call
        self._argv: Any = []  # its sys.argv: these arguments, or what it has made of them

    @contextmanager
    def entered(self, arguments: Sequence[str] = ()) -> Iterator[None]:
        """Put the view in place for a call. For the thread that has leased the interpreter.

        Args:
            arguments: the worker's ``sys.argv``, unless the model has changed its own; empty: no change.
        """
        self.enter(arguments)
        try:
            yield
        finally:
            self.leave()

    def enter(self, arguments: Sequence[str]) -> None:
        """Do what ``entered`` does at its beginning. The caller must call ``leave`` in any case."""
        global _calling_thread
        if _current is not self:
            self._put_in_place()
        _calling_thread = threading.get_ident()
        if arguments and arguments is not self._arguments:
            self._give(arguments)
        if self._arguments:
            sys.argv = self._argv
        if self._directory is not None and getattr(_thread, "is_in_directory_of", None) is not self:
            try:
                os.chdir(self._directory)
            except OSError:  # it was removed between calls
                os.chdir(self._own_directory)
        if not self._grad:
            torch.set_grad_enabled(False)
        if self._device is not None:
            torch.set_default_device(self._device)

    def leave(self) -> None:
        """Do what ``entered`` does at its end."""
        global _calling_thread
        _calling_thread = 0
        if self._arguments:
            self._argv = getattr(sys, "argv", [])
        if self._directory is not None:
            try:
                self._directory = os.getcwd()
                _thread.is_in_directory_of = self
            except OSError:  # a call may remove the directory that it is in
                _thread.is_in_directory_of = None
        self._grad = torch.is_grad_enabled()

    def loaded(self) -> None:
        """Note what the model has changed, after it has been loaded. Call while the view is entered.

        A default device that the model set remains for its calls, as in a worker of its own: libtorch keeps
        it per thread.
        """
        if self.modules is not None:
            self.modules.collect()
        for changes in self._changes:
            changes.note()
        device = torch.get_default_device()
        self._device = None if device.type == "cpu" else device

    def close(self) -> None:
        """Restore the state before any model if this view is in place, and remove its modules."""
        if self.loop is not None and not self.loop.is_running():
            self.loop.close()
        if _current is self:
            take_out()
        if self.modules is not None:
            self.modules.close()

    def _give(self, arguments: Sequence[str]) -> None:
        """Replace the arguments by another worker's, whose socket differs, unless the model has its own."""
        if type(self._argv) is list and self._argv == list(self._arguments):
            self._argv[:] = arguments
        self._arguments = arguments

    def _put_in_place(self) -> None:
        global _current, _initial, _initial_path
        # Read all before anything changes: if one cannot be read, the view that is in place stays complete.
        found = tuple(kept.get() for kept in _KEPT)
        if _current is not None:
            _current._take_back()
        _initial_path = _initial_path or sys.path[:]
        module_scope.enter(self.modules)
        if self.modules is None:
            module_scope.replace_path(self._path or _initial_path)
        if _current is not None:
            _current._state = found
        elif not _initial:
            set_event_loop_policy(_EventLoops())
            _undo_changes_of_neighbours()
            _initial = found = tuple(kept.get() for kept in _KEPT)
            import_reads.note_reads(environ_data().copy())
        _exchange(found, self._state or _initial)
        if not self._state:
            random_state.seed()
        for changes in self._changes:
            changes.put()
        self._changes = self._changes or tuple(begin() for begin in own_changes.KINDS)
        _current = self

    def _take_back(self) -> None:
        """Take out what the model has changed of loggers and the like, and its ``sys.path``."""
        for changes in self._changes:
            changes.take_back()
        if self.modules is None:
            self._path = module_scope.replace_path(_initial_path)


def _exchange(present: Sequence[Any], state: Sequence[Any]) -> None:
    """Put a state in place. Most of it is what is there: models change little."""
    for kept, now, value in zip(_KEPT, present, state, strict=True):
        if value is not now:
            kept.put(value)


def leave_directory(of: str) -> None:
    """Move this thread out of a model's directory, if it is in one, to that of a model to be unloaded.

    Code that runs when objects go, such as ``weakref.finalize``, may remove files by relative paths.

    Args:
        of: the directory of the model to be unloaded. It may be gone: then the thread is in no model's.
    """
    if getattr(_thread, "is_in_directory_of", None) is not None:
        _thread.is_in_directory_of = None
        exits.leave_directory(of)


def take_out() -> None:
    """Restore the state before any model, until the next call.

    For the thread that has leased the interpreter.
    """
    global _current
    if _current is None:
        return
    found = tuple(kept.get() for kept in _KEPT)
    _current._take_back()
    module_scope.enter(None)
    _current._state = found
    _exchange(found, _initial)
    _current = None
