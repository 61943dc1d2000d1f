"""Finds what a model has rebound in modules and classes that are not its own, and that its neighbours use.

In a process of its own a model may replace ``torch.relu``, delete a builtin or clear ``sys.modules``; in
here its neighbours would answer with that. What is *theirs*, the environment's, is every module that is no
model's. Of these, the names of functions, classes and modules are watched (``dict_watch.cc``), and those
classes' methods. Not vandalism, as libraries live by it:

- names that appear, and states that change: what was no function or class before;
- what a library does when it is imported, or to itself: a module that has just been imported may replace
  functions of others by its own, and a package its own by new ones;
- what interpool has put in place.

So what counts is a name of the environment's that is gone, or is bound to what a model defines, or to
what was there before under another name; and in a module that has just come, and its classes, what a model
defines. It counts at the moment somebody looks: what is put back, as by ``unittest.mock.patch``, has
changed nothing.
"""

from __future__ import annotations

import builtins
import re
import sys
import time
from collections.abc import Callable, Collection, Iterable
from types import FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import _interpool
from interpool.native.inside import import_reads, lean_imports, module_scope, owners, traces
from interpool.native.inside.traces import Trace

# Functions here use these: of the interpreter's, a model may have removed some.
globals()["__builtins__"] = vars(builtins).copy()

LOOKS = 8  # after a load: that, and some calls
LOOK_S = 0.5
FIRST_CALLS = 2  # of a model in an interpreter, after each of which it is looked at thoroughly
THOROUGH_S = 20.0  # and then; more where a look takes long
_PART = 0.002  # of the time, at most, that thorough looks take

_OURS = "interpool"
_MOCKS = "unittest.mock"  # never a library's own way
_MOST_TOLD = 5


class Found(NamedTuple):
    """What models have done to the environment.

    Attributes:
        text: for people, the end of a sentence.
        paths: of their directories or archives; "" is among them if that cannot be known of all.
    """

    text: str
    paths: frozenset[str]


class Neighbourhood:
    """What is watched in this interpreter. For the thread that has leased it."""

    def __init__(self) -> None:
        self._modules: dict[str, ModuleType] = {}
        self._watches: list[tuple[Any, list[str]]] = []  # of modules: their names
        self._class_watches: list[tuple[Any, list[type]]] = []
        self._function_watches: list[Any] = []
        self._looks = 0
        self._next = 0.0
        self._thorough_next = 0.0
        self._gone: set[str] = set()
        self._size = (0, 0)  # of sys.modules, and how many of them were late

    def begin(self) -> None:
        """Watch what is there now: a model is about to be loaded."""
        self._add(self._new())
        self._looks = LOOKS

    def look(self, at_once: bool = False) -> str:
        """What the model that is in place has done to it since, as in Found; "" if nothing.

        What has been imported since is watched from now on. After a load and the first calls it is looked at
        each time, then once in ``LOOK_S``; and ``at_once``, where another model's turn comes.
        """
        now = time.monotonic()
        if self._looks <= 0 and now < self._next and not at_once:
            return ""
        self._looks -= 1
        self._next = now + LOOK_S
        found = _looked("replaced or removed", lambda: map(Trace, self._changes())) or _looked(
            "left traces in", lambda: map(Trace, import_reads.take_reads())
        )
        if not found and not at_once:
            found = _looked("replaced or removed", self._exchanged)
        return found.text if found else ""

    @property
    def thorough_look_is_due(self) -> bool:
        """Whether the last one was long ago."""
        return time.monotonic() >= self._thorough_next

    def look_thoroughly(self, passed_over: Collection[str] = ()) -> Found | None:
        """What models have left in it; None if nothing. While none is in place, and after ``look``.

        Called after each load, whether it failed or not, after the first calls, and when it is due.
        """
        began = time.monotonic()

        def counting(look: Callable[[], list[Trace]]) -> Callable[[], list[Trace]]:
            return lambda: [trace for trace in look() if not _is_below(trace.path, passed_over)]

        found = _looked("replaced or removed", counting(self._exchanged)) or _looked(
            "left traces in", counting(traces.all_traces)
        )
        now = time.monotonic()
        self._thorough_next = now + max(THOROUGH_S, (now - began) / _PART)
        return found

    def _exchanged(self) -> list[Trace]:
        """Functions that have other code than they had, or other defaults: not for each request."""
        return [
            Trace(
                f"the code of {function.__module__}.{function.__qualname__}",
                owners.path_of({"__name__": function.__code__.co_filename.partition(".")[0]})
                if function.__code__.co_filename.startswith(_PACKAGED)
                else function.__code__.co_filename,
            )
            for watch in self._function_watches
            for function in _interpool.exchanged_functions(watch)
            if not _is_compiled_by_itself(function)
        ]

    def _changes(self) -> list[str]:
        fresh = self._new()
        found = [*self._lost(), *self._rebound(fresh), *self._redefined()]
        for name, module in fresh.items():
            planted = (key for key, value in vars(module).copy().items() if self._is_models(value, fresh))
            found += [f"{name}.{key}" for key in planted]
        for one in _classes(fresh):
            found += self._methods_of_models(one, fresh)
        self._add(fresh)
        return found

    def _new(self) -> dict[str, ModuleType]:
        """The environment's modules that are not watched yet."""
        # A late module counts as soon as it has its contents.
        size = len(sys.modules), lean_imports.late_modules()
        if size == self._size:
            return {}
        self._size = size
        return {
            name: module
            for name, module in sys.modules.copy().items()
            if type(module) is ModuleType
            and self._modules.get(name) is not module
            and not _is_models(name, module)
        }

    def _add(self, modules: dict[str, ModuleType]) -> None:
        if not modules:
            return
        self._modules |= modules
        dicts = [vars(module) for module in modules.values()]
        self._watches.append((_interpool.watch_dicts(dicts, True), list(modules)))
        classes = _classes(modules)
        self._class_watches.append((_interpool.watch_dicts(classes, False), classes))
        self._function_watches.append(_interpool.watch_functions([*dicts, *classes]))

    def _lost(self) -> list[str]:
        """What is no longer where everybody looks for it."""
        needed = self._modules.keys() & set(_NEEDED)
        gone = sorted(needed - sys.modules.keys() - self._gone)
        self._gone.update(gone)
        return [f"sys.modules[{name!r}]" for name in gone]

    def _rebound(self, fresh: dict[str, ModuleType]) -> list[str]:
        found = []
        for watch, names in self._watches:
            for index, bindings in _interpool.changed_dicts(watch):
                name = names[index]
                now = vars(self._modules[name])
                found += [
                    f"{name}.{key}"
                    for key, was in bindings
                    if (name, key) not in _SETTINGS
                    and self._is_vandalism(name, was, now.get(key, _GONE), fresh)
                ]
        return found

    def _redefined(self) -> list[str]:
        found = []
        for watch, classes in self._class_watches:
            for index, _ in _interpool.changed_dicts(watch):
                found += self._methods_of_models(classes[index])
        return found

    def _methods_of_models(self, one: type, fresh: dict[str, ModuleType] | None = None) -> list[str]:
        """What a class of the environment's has of a model."""
        return [
            f"{one.__module__}.{one.__qualname__}.{key}"
            for key, value in list(vars(one).items())
            if self._is_models(value, fresh)
        ]

    def _is_models(self, value: object, fresh: dict[str, ModuleType] | None = None) -> bool:
        """Is it a function of a model's?"""
        if isinstance(value, (staticmethod, classmethod, MethodType)):
            value = value.__func__
        if not isinstance(value, FunctionType):
            return False
        site = str(value.__globals__.get("__name__"))
        if site in self._modules or (fresh is not None and site in fresh):
            return False
        return site.startswith(_PACKAGED) or (site in sys.modules and _is_models(site, sys.modules[site]))

    def _is_vandalism(self, name: str, was: object, now: object, fresh: dict[str, ModuleType]) -> bool:
        if isinstance(was, ModuleType) or _site(was).split(".")[0] == _OURS:
            return False
        if now is _GONE:
            return True
        site = _site(now)
        if site == _MOCKS:
            return True
        if site.split(".")[0] == _OURS or site in fresh:
            return False
        is_itself = site in self._modules and site.split(".")[0] == name.split(".", maxsplit=1)[0]
        there = getattr(self._modules.get(site), getattr(now, "__name__", ""), None)
        return not is_itself or there is now


_GONE = object()
_SETTINGS = {("torch", "Storage")}  # torch.set_default_dtype changes it, which each model has for itself
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: others' methods cannot be replaced
_WORDS = re.compile(r"\w+")
_PACKAGED = "<torch_package"  # of modules in archives
_NEEDED = ("builtins", "sys", "torch", "ts", "numpy", "json", "logging", "os", "threading", _OURS)


def _is_compiled_by_itself(function: FunctionType) -> bool:
    """Whether a library has compiled it, as networkx does at the first call, and names itself for a file."""
    file = function.__code__.co_filename
    library = function.__module__.partition(".")[0]
    return file.startswith("<") and not file.startswith(_PACKAGED) and library in _WORDS.findall(file)


def _is_below(path: str, directories: Collection[str]) -> bool:
    return any(f"{path}/".startswith(f"{directory}/") for directory in directories)


def _looked(what: str, look: Callable[[], Iterable[Trace]]) -> Found | None:
    try:
        found = list(look())
    except MemoryError:  # which is nobody's trace; somebody looks again
        return None
    except Exception as error:  # noqa: BLE001  the model may have taken anything away
        found = [Trace(f"what interpool itself uses ({type(error).__name__}: {error})")]
    if not found:
        return None
    more = f" and {len(found) - _MOST_TOLD} more" if len(found) > _MOST_TOLD else ""
    text = f"it has {what} {', '.join(trace.text for trace in found[:_MOST_TOLD])}{more}"
    return Found(text, frozenset(trace.path for trace in found))


def _classes(modules: dict[str, ModuleType]) -> list[type]:
    """The classes that modules define."""
    return [
        value
        for name, module in modules.items()
        for value in list(vars(module).values())
        # Of instances of odd classes nothing is asked.
        if issubclass(type(value), type) and value.__module__ == name and value.__flags__ & _HEAP_TYPE
    ]


def _is_models(name: str, module: ModuleType) -> bool:
    return name.startswith(_PACKAGED) or module_scope.is_own(name, module)


def _site(value: object) -> str:
    """The module that defines it; of an instance, its class's."""
    if isinstance(value, FunctionType):
        return str(value.__globals__.get("__name__"))
    found = getattr(value, "__module__", None)
    return found if isinstance(found, str) else str(type(value).__module__)
