"""Isolates what a model changes, while it is loaded, of things that its interpreter finds by name.

These are loggers and their handlers, the classes that ``torch.load`` may make, and what TorchScript has
compiled. In a process of its own, a model's changes of them affect no other model. Most models change no
loggers. So the changes of a load are noted once and exchanged with the view (``process_view``); all others
stay in place for all models.

A library that several models import sets up its loggers once, when the first model imports it. So all models
share what has the name of such a module.
"""

from __future__ import annotations

import atexit
import logging
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol, Self
from weakref import WeakSet

from interpool.native.inside import module_scope
from interpool.native.upstream.cpython_private import LogHandlers
from interpool.native.upstream.torch_private import (
    MANGLED,
    ScriptState,
    replace_safe_globals,
    safe_globals,
    tree_classes,
)


class Changes(Protocol):
    """One model's changes of one kind. An object is made when the model's view is first entered."""

    def note(self) -> None:
        """Note the model's changes, after it has been loaded; they are in place."""

    def take_back(self) -> None:
        """Restore the earlier state, for another model. This may be called before ``note``."""

    def put(self) -> None:
        """Put the model's changes in place again."""


class _Exchanged:
    """Changes that are put in place and taken back by the same exchange."""

    def note(self) -> None:
        """See Changes."""

    def take_back(self) -> None:
        """See Changes."""
        self.note()
        self._exchange()

    def put(self) -> None:
        """See Changes."""
        self._exchange()

    def _exchange(self) -> None:
        raise NotImplementedError


class _LoggerState(NamedTuple):
    level: int
    handlers: list[logging.Handler]
    filters: list[Any]
    propagate: bool
    disabled: bool

    def put(self, logger: logging.Logger) -> None:
        logger.level, logger.propagate, logger.disabled = self.level, self.propagate, self.disabled
        logger.handlers[:], logger.filters[:] = self.handlers, self.filters


class _HandlerState(NamedTuple):
    level: int
    formatter: logging.Formatter | None
    filters: list[Any]
    stream: Any  # None: it has none that setStream sets

    @classmethod
    def of(cls, handler: logging.Handler) -> Self:
        # A handler of files opens and closes its stream itself.
        is_set = isinstance(handler, logging.StreamHandler) and not isinstance(handler, logging.FileHandler)
        stream = vars(handler).get("stream") if is_set else None
        return cls(handler.level, handler.formatter, handler.filters[:], stream)

    def put(self, handler: logging.Handler) -> None:
        handler.level, handler.formatter, handler.filters[:] = self[:3]
        if self.stream is not None:
            handler.stream = self.stream  # type: ignore[attr-defined]


_State = _LoggerState | _HandlerState
_NEW = _LoggerState(logging.NOTSET, [], [], propagate=True, disabled=False)


class LoggerChanges(_Exchanged):
    """Levels, handlers and filters of loggers but the root logger, and of handlers that were there before."""

    def __init__(self) -> None:
        self._before: dict[Any, _State] | None = dict(_states())
        self._changed: dict[Any, _State] = {}

    def note(self) -> None:
        """See Changes."""
        if self._before is None:
            return
        before, self._before = self._before, None
        for subject, state in _states():
            if subject in before:
                other: _State = before[subject]
            elif isinstance(subject, logging.Logger) and not _is_of_environment(subject.name):
                other = _NEW
            else:
                continue
            if state != other:
                self._changed[subject] = other

    def _exchange(self) -> None:
        for subject, other in self._changed.items():
            self._changed[subject] = _state(subject)
            other.put(subject)
        if self._changed:
            root = logging.getLogger()
            root.setLevel(root.level)  # clears the levels that loggers have cached


def _states() -> Iterator[tuple[Any, _State]]:
    root = logging.getLogger()
    handlers = set(root.handlers)
    for logger in logging.root.manager.loggerDict.copy().values():
        if isinstance(logger, logging.Logger):  # not a placeholder
            handlers.update(logger.handlers)
            yield logger, _state(logger)
    for handler in handlers:
        yield handler, _state(handler)


def _state(subject: Any) -> _State:
    if isinstance(subject, logging.Logger):
        return _LoggerState(
            subject.level, subject.handlers[:], subject.filters[:], subject.propagate, subject.disabled
        )
    return _HandlerState.of(subject)


class Handlers(_Exchanged):
    """The handlers that ``logging.config`` closes if the model uses it: its own, not its neighbours'."""

    def __init__(self) -> None:
        own = LogHandlers.copied()
        self._references = own.references
        self._other = own.exchange()
        _handlers.add(self)

    def _exchange(self) -> None:
        self._other = self._other.exchange()

    def close(self) -> None:
        """Write what they hold, and close them."""
        logging.shutdown(self._references)


_handlers: WeakSet[Handlers] = WeakSet()


@atexit.register
def _close_handlers() -> None:
    # Python closes only those that it knew before any model.
    for handlers in list(_handlers):
        handlers.close()


class SafeGlobals:
    """The model's own classes and functions that it has allowed for ``torch.load``, by their names."""

    def __init__(self) -> None:
        self._before: frozenset[Any] | None = safe_globals()
        self._own: frozenset[Any] = frozenset()

    def note(self) -> None:
        """See Changes."""
        if self._before is not None:
            new, self._before = safe_globals() - self._before, None
            self._own = frozenset(one for one in new if not _is_of_environment(_module_of(one)))

    def take_back(self) -> None:
        """See Changes."""
        self.note()
        if self._own:
            replace_safe_globals(safe_globals() - self._own)

    def put(self) -> None:
        """See Changes."""
        if self._own:
            replace_safe_globals(safe_globals() | self._own)


class TreeClasses(_Exchanged):
    """The model's own classes that it has registered with torch as trees, by their names in files."""

    def __init__(self) -> None:
        self._before: dict[str, type] | None = tree_classes().copy()
        self._own: dict[str, type | None] = {}  # what the names mean for others; None: nothing

    def note(self) -> None:
        """See Changes."""
        if self._before is None:
            return
        before, self._before = self._before, None
        for name, one in tree_classes().items():
            if before.get(name) is not one and not _is_of_environment(_module_of(one)):
                self._own[name] = before.get(name)

    def _exchange(self) -> None:
        there = tree_classes()
        for name, other in self._own.items():
            self._own[name] = there.pop(name, None)
            if other is not None:
                there[name] = other


class Script(_Exchanged):
    """What TorchScript has compiled of the model's code. In it, a class's name means only one class."""

    def __init__(self) -> None:
        self._other = ScriptState.begun().exchange()

    def _exchange(self) -> None:
        self._other = self._other.exchange()


def _module_of(allowed: Any) -> str:
    found = allowed[0] if isinstance(allowed, tuple) else allowed
    return str(getattr(found, "__module__", ""))


def _is_of_environment(name: str) -> bool:
    """Whether a module that several models share has that name, or is a parent of it."""
    top = name.partition(".")[0]
    if top.startswith(MANGLED):
        return False  # an archive's, which is in sys.modules, too
    module = sys.modules.get(top)
    return module is not None and not module_scope.is_own(top, module)


KINDS: tuple[Callable[[], Changes], ...] = (LoggerChanges, Handlers, SafeGlobals, TreeClasses, Script)
