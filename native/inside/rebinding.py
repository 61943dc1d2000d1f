"""Detects what a model has replaced in modules and classes that other models of its interpreter use.

A model may replace ``torch.relu``, delete a builtin or clear ``sys.modules``. In a private interpreter, that
would change the answers of the other models.

The *environment* is every module that does not belong to a model. This module watches its names of functions,
classes and modules (``dict_watch.cc``), and the methods of its classes. Libraries depend on three kinds of
change, which are allowed:

- new names, and new values of names that were neither functions nor classes;
- changes by a library during its import, or to itself: it may replace functions of others by its own.
  Later, a model asks for them, as by a library's ``patch()``;
- replacements by interpool.

A name of the environment is reported if it was removed, or bound to an object of a model. It is also reported
if it was bound to an existing object of another name. In newly imported modules and their classes, every
object of a model is reported. Only the state during a check counts: ``unittest.mock.patch`` changes nothing
if it has ended.
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
from interpool.native.inside import import_ends, import_reads, lean_imports, module_scope, owners, traces
from interpool.native.inside.traces import Trace

# A model may remove builtins, so this module uses a copy.
globals()["__builtins__"] = vars(builtins).copy()

LOOKS = 8  # checks after a load: the load, and some calls
LOOK_S = 0.5
FIRST_S = 1.0  # seconds between two thorough checks after a load; each time twice as long, up to:
THOROUGH_S = 20.0  # more if one takes long
_PART = 0.002  # the share of time that thorough checks may take

_OURS = "interpool"
_MOCKS = "unittest.mock"  # always reported: libraries do not mock
_MOST_LISTED = 5


class Found(NamedTuple):
    """Changes of the environment by models.

    Attributes:
        text: describes them for people; the end of a sentence.
        paths: of the models' directories or archives; contains "" if one is unknown.
    """

    text: str
    paths: frozenset[str]


class Neighbourhood:
    """Watches the environment of this interpreter. Only the thread that leases the interpreter uses it."""

    def __init__(self) -> None:
        self._modules: dict[str, ModuleType] = {}
        self._watches: list[tuple[Any, list[str]]] = []  # module names of each watch
        self._class_watches: list[tuple[Any, list[type]]] = []
        self._function_watches: list[Any] = []
        self._looks = 0
        self._next = 0.0
        self._began = 0.0  # when a model was last loaded
        self._thorough_next = 0.0
        self._gone: set[str] = set()
        self._size = (0, 0)  # the number of all modules, and of deferred ones
        self._imported: set[str] = set()  # modules at the end of the last import
        self._by_imports: dict[tuple[str, str], object] = {}  # what libraries have bound in others

    def begin(self) -> None:
        """Watch the present environment. Call before a model is loaded."""
        if not self._imported:
            self._imported.update(sys.modules)
            import_ends.notice(self._note_import)
        self._add(self._new())
        self._looks = LOOKS
        self._began = time.monotonic()

    def look(self, at_once: bool = False) -> str:
        """Return what the active model has changed since the last check, as in ``Found.text``; "" if nothing.

        Modules imported since then are watched from now on. The first ``LOOKS`` calls after a load check each
        time, later calls once in ``LOOK_S`` seconds.

        Args:
            at_once: check now, because another model becomes active.
        """
        now = time.monotonic()
        if self._looks <= 0 and now < self._next and not at_once:
            return ""
        self._looks -= 1
        self._next = now + LOOK_S
        found = _findings("replaced or removed", lambda: map(Trace, self._changes())) or _findings(
            "left traces in", lambda: map(Trace, import_reads.take_reads())
        )
        if not found and not at_once:
            found = _findings("replaced or removed", self._changed_functions)
        return found.text if found else ""

    @property
    def thorough_look_is_due(self) -> bool:
        """Return whether it is time for the next thorough check."""
        return time.monotonic() >= self._thorough_next

    def look_thoroughly(self, passed_over: Collection[str] = ()) -> Found | None:
        """Return what models have changed or left in the environment; None if nothing.

        Call it after ``look``, while no model is active: before another model runs after a load or its first
        call, and when it is due. It is due soon after a load, and then less and less often.

        Args:
            passed_over: directories of models to ignore.
        """
        began = time.monotonic()

        def counting(look: Callable[[], list[Trace]]) -> Callable[[], list[Trace]]:
            return lambda: [trace for trace in look() if not _is_below(trace.path, passed_over)]

        found = _findings("replaced or removed", counting(self._changed_functions)) or _findings(
            "left traces in", counting(traces.all_traces)
        )
        now = time.monotonic()
        later = max(THOROUGH_S, (now - began) / _PART)
        self._thorough_next = now + min(later, max(FIRST_S, now - self._began))
        return found

    def _changed_functions(self) -> list[Trace]:
        """Return functions whose code or defaults were replaced. Too slow for each request."""
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
        found = [*self._removed_modules(), *self._rebound(fresh), *self._changed_methods()]
        for name, module in fresh.items():
            planted = (key for key, value in vars(module).copy().items() if self._is_models(value, fresh))
            found += [f"{name}.{key}" for key in planted]
        for one in _classes(fresh):
            found += self._methods_of_models(one, fresh)
        self._add(fresh)
        return found

    def _new(self) -> dict[str, ModuleType]:
        """Return the environment's modules that are not watched yet."""
        # A deferred module counts once it has its contents.
        size = len(sys.modules), lean_imports.deferred_count()
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

    def _removed_modules(self) -> list[str]:
        """Return the required modules that are missing from ``sys.modules``."""
        # By name: the difference of the sets would touch every module's name with each request.
        gone = [
            name
            for name in _NEEDED
            if name not in sys.modules and name in self._modules and name not in self._gone
        ]
        self._gone.update(gone)
        return [f"sys.modules[{name!r}]" for name in gone]

    def _note_import(self) -> None:
        """Note what the libraries that were imported now have bound in others. On any thread."""
        new = sys.modules.keys() - self._imported
        self._imported |= new
        for watch, names in self._watches[:]:
            for index, bindings in _interpool.changed_dicts(watch, True):
                name = names[index]
                now = vars(self._modules[name])
                self._by_imports |= {
                    (name, key): now[key] for key, _ in bindings if key in now and _site(now[key]) in new
                }

    def _rebound(self, fresh: dict[str, ModuleType]) -> list[str]:
        by_imports, self._by_imports = self._by_imports, {}
        found = []
        for watch, names in self._watches:
            for index, bindings in _interpool.changed_dicts(watch):
                name = names[index]
                now = vars(self._modules[name])
                found += [
                    f"{name}.{key}"
                    for key, was in bindings
                    if (name, key) not in _SETTINGS
                    and by_imports.get((name, key), self) is not now.get(key, _MISSING)
                    and self._is_replacement(name, was, now.get(key, _MISSING), fresh)
                ]
        return found

    def _changed_methods(self) -> list[str]:
        found = []
        for watch, classes in self._class_watches:
            for index, _ in _interpool.changed_dicts(watch):
                found += self._methods_of_models(classes[index])
        return found

    def _methods_of_models(self, one: type, fresh: dict[str, ModuleType] | None = None) -> list[str]:
        """Return a model's functions among the members of a class of the environment."""
        return [
            f"{one.__module__}.{one.__qualname__}.{key}"
            for key, value in list(vars(one).items())
            if self._is_models(value, fresh)
        ]

    def _is_models(self, value: Any, fresh: dict[str, ModuleType] | None = None) -> bool:
        """Return whether a value is a function of a model."""
        # type() runs no code of an instance, unlike isinstance().
        if issubclass(type(value), (staticmethod, classmethod, MethodType)):
            value = value.__func__
        if type(value) is not FunctionType:
            return False
        site = str(value.__globals__.get("__name__"))
        if site in self._modules or (fresh is not None and site in fresh):
            return False
        return site.startswith(_PACKAGED) or (site in sys.modules and _is_models(site, sys.modules[site]))

    def _is_replacement(self, name: str, was: object, now: object, fresh: dict[str, ModuleType]) -> bool:
        if isinstance(was, ModuleType) or _site(was).split(".")[0] == _OURS:
            return False
        if now is _MISSING:
            return True
        site = _site(now)
        if site == _MOCKS:
            return True
        if site.split(".")[0] == _OURS or _is_of_cython(now):
            return False
        top = name.partition(".")[0]
        is_itself = (site in self._modules or site in fresh) and site.partition(".")[0] == top
        there = getattr(self._modules.get(site), getattr(now, "__name__", ""), None)
        return not is_itself or there is now


_MISSING = object()
_SETTINGS = {("torch", "Storage")}  # torch.set_default_dtype sets it, per model
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: only such classes let a model replace their methods
_WORDS = re.compile(r"\w+")
_PACKAGED = "<torch_package"  # prefix of modules in archives
_NEEDED = sorted(("builtins", "sys", "torch", "ts", "numpy", "json", "logging", "os", "threading", _OURS))


def _is_compiled_by_itself(function: FunctionType) -> bool:
    """Return whether a library has compiled it and names itself as the file, as networkx does."""
    file = function.__code__.co_filename
    library = function.__module__.partition(".")[0]
    return file.startswith("<") and not file.startswith(_PACKAGED) and library in _WORDS.findall(file)


def _is_of_cython(value: object) -> bool:
    """Return whether it is the ``inspect.isgenerator`` with which Cython's modules, as catboost, replace it.

    Its globals have no ``__name__``. It differs from the function that it calls for Cython's generators only.
    """
    return (
        isinstance(value, FunctionType)
        and "__name__" not in value.__globals__
        and "_cython_generator_types" in vars(value)
    )


def _is_below(path: str, directories: Collection[str]) -> bool:
    return any(f"{path}/".startswith(f"{directory}/") for directory in directories)


def _findings(what: str, look: Callable[[], Iterable[Trace]]) -> Found | None:
    try:
        found = list(look())
    except MemoryError:  # no model's change; the next check repeats this
        return None
    except Exception as error:  # noqa: BLE001 (the model may have removed anything)
        found = [Trace(f"what interpool itself uses ({type(error).__name__}: {error})")]
    if not found:
        return None
    more = f" and {len(found) - _MOST_LISTED} more" if len(found) > _MOST_LISTED else ""
    text = f"it has {what} {', '.join(trace.text for trace in found[:_MOST_LISTED])}{more}"
    return Found(text, frozenset(trace.path for trace in found))


def _classes(modules: dict[str, ModuleType]) -> list[type]:
    """Return the classes that these modules define."""
    return [
        value
        for name, module in modules.items()
        for value in list(vars(module).values())
        # type() runs no code of an instance, unlike isinstance().
        if issubclass(type(value), type) and value.__module__ == name and value.__flags__ & _HEAP_TYPE
    ]


def _is_models(name: str, module: ModuleType) -> bool:
    return name.startswith(_PACKAGED) or module_scope.is_own(name, module)


def _site(value: object) -> str:
    """Return the name of the module that defines a value, or else its class."""
    if isinstance(value, FunctionType):
        return str(value.__globals__.get("__name__"))
    found = getattr(value, "__module__", None)
    return found if isinstance(found, str) else str(type(value).__module__)
