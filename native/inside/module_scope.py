"""Isolates the modules of each model's directory in an interpreter that has several models.

A stock worker imports modules of its model's directory under plain names: ``handler``, ``model``, ``utils``.
Here, every model has a *scope*: its own part of ``sys.modules`` and of packages' attributes, and its own
``sys.path``. They are in place while the scope is *entered*. An interpreter runs one call at a time, so at
most one scope is entered. All kinds of import then work as in the model's own process: statements,
``importlib.import_module``, pickles, ``inspect``, changes of ``sys.path``.

To a scope belong:

- modules found in its directory, or on paths that its model has added;
- every name in its directory and in its handler's, which hides the environment's module of that name;
- modules that its code puts into ``sys.modules``;
- modules of the environment that use any of these, such as a handler of TorchServe's that uses the
  directory's torchvision.

All others belong to the environment and are imported once for all scopes.

A thread of a model may import while another scope is entered. Imports in the model's own code then still use
the model's scope: ``importlib.import_module``, and import statements once there is such a thread
(``_guard_statements``). Imports by other code on its behalf, such as pickles, do not.
"""

from __future__ import annotations

import builtins
import functools
import importlib.metadata
import importlib.util
import os
import sys
import threading
from contextlib import suppress
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
    SourcelessFileLoader,
    all_suffixes,
)
from operator import itemgetter
from pathlib import Path
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import _interpool
from interpool.native.inside import exits, lean_imports, operators, owners
from interpool.native.upstream.cpython_private import attributes_of, forget_source_lines, is_importing
from interpool.native.upstream.torch_private import MANGLED

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence


# Prefix of the module in which all libraries of one Cython version keep their function types.
_CYTHON = "_cython_"
_MISSING = object()


class ModuleConflict(Exception):
    """A directory contains a module that this interpreter already has from another place."""


class ModuleScope:
    """The modules that are imported from one directory.

    Args:
        directory: absolute path; its resolved path counts, too.
        first: directories that come before all others on its ``sys.path``: its handler's.
        python_path: the entries of PYTHONPATH, which come next. ``os.environ`` may be another model's.

    Raises:
        ModuleConflict: it contains another version of a module that was imported before any model.
    """

    def __init__(self, directory: str, first: Sequence[str] = (), python_path: Collection[str] = ()) -> None:
        _install()
        self.directory = directory
        self._roots = tuple({directory, os.path.realpath(directory)})
        self._modules: dict[str, ModuleType] = {}
        self._unfinished: set[str] = set()  # those that a thread is importing
        self._removed: list[str] = []  # names of the environment that the model has removed, while entered
        self._hidden: dict[str, ModuleType] = {}
        # While the modules are not in place: their entries among the attributes of the environment's
        # packages.
        self._bound: dict[str, ModuleType] = {}
        self._hidden_bound: dict[str, ModuleType] = {}
        self._finders: dict[str, Any] = {}
        self._base: list[str] = list(sys.path if _entered is None else _entered._base)  # environment's
        own = [directory, *(path for path in first if path not in self._base and os.path.isdir(path))]
        self._names = frozenset(name for path in own for name in _names(path, self._base))
        # The directory follows PYTHONPATH, as in TorchServe's workers. All other entries come after it, also
        # the program's own directory: a file there must not replace one of the model's.
        given = {os.path.normpath(entry) for entry in python_path if entry}
        before = [entry for entry in self._base if entry in given]
        others = [entry for entry in self._base if entry not in given]
        self.path = [*first, *before, directory, *others]
        _scopes.add(self)

    @property
    def entered(self) -> bool:
        """Whether this scope is in place."""
        return _entered is self

    def collect(self) -> None:
        """Determine which modules of the interpreter belong to this scope. Call while it is entered.

        Leaving the scope also calls it if ``sys.modules`` has changed.
        """
        _take_change(_modules_watch)
        modules = sys.modules.copy()
        new = {name: one for name, one in modules.items() if not _is_environments(name, one)}
        self._modules = {
            name: module for name, module in self._modules.items() if new.get(name, _MISSING) is module
        }
        try:
            others: dict[str, ModuleType] = {}
            for name, module in sorted(new.items(), key=itemgetter(0)):  # packages before their submodules
                (self._modules if self._is_own(name, module) else others)[name] = module
            self._modules = _users(self._modules, others)
        except Exception:  # noqa: BLE001 - objects that the model has put there may raise anything
            self._modules = new
        self._unfinished = _unfinished(new)
        known = self._modules.keys() | self._unfinished
        _environment.update((name, module) for name, module in new.items() if name not in known)
        # An archive's modules go when it is closed.
        gone = _environment.keys() - modules.keys()
        self._removed = [name for name in gone if not name.startswith(MANGLED)]
        _ever_own.update(self._modules)

    def close(self) -> None:
        """Forget the modules, release what they have registered with torch, and call their exit functions.

        Their objects still work, but can import none of them.
        """
        if exits.has_pending(self):
            _guard_statements()  # exit functions import this scope's modules, even if another one is entered
        if self.entered:
            enter(None)
        exits.call(self, self._modules.clear)
        operators.release(self)
        for path in self._finders:
            sys.path_importer_cache.pop(path, None)
        self._bound.clear()
        forget_source_lines(tuple(root + os.sep for root in self._roots))

    def claims(self, path: str) -> bool:
        """Return whether modules in a directory belong to this scope."""
        if path in self._finders or any(_is_below(path, root) for root in self._roots):
            return True
        if path in self._base or _is_vendored(path):
            return False
        return path in sys.path or any(_is_below(path, own) for own in self._finders)

    def finder(self, path: str) -> FileFinder:
        """Return a finder for modules in a directory of this scope."""

        def private(loader: type) -> Any:
            def make(name: str, file: str) -> Any:
                made = loader(name, file)
                made.scope = self
                return made

            return make

        made = FileFinder(
            path,
            (private(ExtensionFileLoader), EXTENSION_SUFFIXES),
            (private(SourceFileLoader), SOURCE_SUFFIXES),
            (private(SourcelessFileLoader), BYTECODE_SUFFIXES),
        )
        self._finders[path] = made
        return made

    def find(self, name: str, fromlist: Sequence[str] | None) -> ModuleType:
        """Resolve an import statement of this scope while another one is entered; see ``lookup``.

        Args:
            name: absolute name of the module.
            fromlist: the names after ``import``, if the statement has ``from``.

        Raises:
            ImportError: the module was not imported before.
        """
        module = self.lookup(name)
        for part in fromlist or ():
            if part != "*" and not hasattr(module, part):
                self.lookup(f"{name}.{part}")
        return module if fromlist else self.lookup(name.partition(".")[0])

    def lookup(self, name: str) -> ModuleType:
        """Return the module that a name means in this scope while another one is entered.

        It must not be of Python's standard library; any other module may use modules of this scope.

        Raises:
            ImportError: it was not imported before.
        """
        module = self._modules.get(name)
        if name not in self._modules and name.partition(".")[0] not in self._names:
            module = _environment.get(name)
        if module is None:
            raise ImportError(
                f"{name!r} was imported in a thread that a model in {self.directory} started, while this "
                "interpreter served another model. Import it at the top of a module instead.",
                name=name,
            )
        return module

    def _is_own(self, name: str, module: ModuleType) -> bool:
        spec = _spec(module)
        if module is None or getattr(getattr(spec, "loader", None), "scope", None) is self:
            return True  # None forbids the import
        top = name.partition(".")[0]
        if top in self._names or top in self._modules:
            return True
        if name in _environment:  # it replaces a module of the environment
            return not _is_of_library(top, module)
        if spec is not None and isinstance(spec.origin, str):
            return any(_is_below(spec.origin, root) for root in self._roots)  # loaded by a custom loader
        paths = attributes_of(module).get("__path__")
        if type(paths) not in (list, tuple):
            paths = spec.submodule_search_locations if spec is not None else ()  # a namespace package
        if paths:
            return any(self.claims(str(path)) for path in paths)
        if name != top and top in sys.modules:  # modules made by compiled code have neither
            package = sys.modules[top]
            return not _is_environments(top, package) and self._is_own(top, package)
        return top not in _environment and not top.startswith(_CYTHON)

    # ---- entering and leaving -----------------------------------------------------------------

    def _enter(self) -> None:
        for name in self._names:
            if name in sys.modules:
                self._hidden.update(_with_submodules(name))
        if self._hidden:
            others = {name: module for name, module in sys.modules.items() if name not in _baseline}
            self._hidden = _users(self._hidden, others)
        for name in self._hidden:
            del sys.modules[name]
        # `from package import name` reads the package's attribute before sys.modules.
        self._hidden_bound = _detach(self._hidden)
        sys.modules.update(self._modules)
        _attach(self._bound)
        sys.path_importer_cache.update(self._finders)
        self._base = replace_path(self.path)
        self._removed.clear()
        self._unfinished.clear()
        _take_change(_modules_watch)
        _take_change(_finders_watch)

    def _leave(self) -> None:
        if _take_change(_modules_watch):
            self.collect()
        if _take_change(_finders_watch):
            _forget_relative_paths()
        self._bound = _detach(self._modules)
        for name in self._modules:
            sys.modules.pop(name, None)
        replaced = [name for name in (*self._modules, *self._removed) if name in _environment]
        sys.modules.update({name: _environment[name] for name in replaced} | self._hidden)
        # A thread that is importing fails without its module. The next import runs the module again.
        for name in self._unfinished:
            self._modules.pop(name, None)
        bound = {name: _environment[name] for name in self._bound if name in _environment}
        _attach(bound | self._hidden_bound)
        self._hidden.clear()
        self._hidden_bound.clear()
        for path in self._finders:
            sys.path_importer_cache.pop(path, None)
        self.path = replace_path(self._base)


_scopes: WeakSet[ModuleScope] = WeakSet()
_ever_own: set[str] = set()  # names of all modules that ever belonged to a scope
_entered: ModuleScope | None = None
_environment: dict[str, ModuleType] = {}  # modules that belong to no scope
_baseline: frozenset[str] = frozenset()  # names of modules that existed before any scope
_modules_watch: Any = None  # of sys.modules
_finders_watch: Any = None  # of sys.path_importer_cache


def enter(scope: ModuleScope | None) -> None:
    """Enter a scope and leave the current one; None leaves only.

    Only the thread that leases the interpreter may call it.
    """
    global _entered
    if scope is _entered:
        return
    if _entered is not None:
        _entered._leave()
    else:
        modules = sys.modules.copy()
        for name in _unfinished({name: modules[name] for name in modules.keys() - _environment.keys()}):
            del modules[name]
        _environment.clear()
        _environment.update(modules)
        _forget_relative_paths()
    _entered = scope
    if scope is not None:
        scope._enter()


def replace_path(path: Sequence[str]) -> list[str]:
    """Replace the contents of ``sys.path``; what setuptools has added to it stays.

    Returns:
        The contents before.
    """
    before = sys.path[:]
    if before != path:
        vendored = [entry for entry in before if entry not in path and _is_vendored(entry)]
        sys.path[:] = [*path, *vendored]
    return before


def is_own(name: str, module: ModuleType) -> bool:
    """Return whether a module belongs to the entered scope, and not to the environment.

    Args:
        name: its name in ``sys.modules``.
        module: the module.
    """
    if _entered is None:
        return False
    if _entered._modules.get(name) is module:
        return True
    return not _is_environments(name, module) and _entered._is_own(name, module)


def all_modules() -> list[tuple[str, ModuleType]]:
    """Return names and modules of all scopes.

    A model may put other objects into ``sys.modules``. They are left out.
    """
    return [
        (name, module)
        for scope in _scopes
        for name, module in scope._modules.items()
        if issubclass(type(module), ModuleType)
    ]


def ever_owned() -> set[str]:
    """Return the names of all modules that ever belonged to a scope."""
    return _ever_own


def _owner(globals_: dict[str, Any]) -> owners.Owner | None:
    """Return the scope of the module with these globals; None for the environment."""
    spec = globals_.get("__spec__")
    scope: ModuleScope | None = getattr(getattr(spec, "loader", None), "scope", None)
    if scope is None and _entered is not None:
        name = str(globals_.get("__name__"))
        module = sys.modules.get(name)
        if module is not None and attributes_of(module) is globals_ and is_own(name, module):
            scope = _entered
    if scope is None:  # a module that was created by hand
        name = str(globals_.get("__name__"))
        has_it = (one for one in _scopes if attributes_of(one._modules.get(name)) is globals_)
        scope = next(has_it, None)
    return owners.Owner(scope, scope.directory) if scope is not None else None


def _install() -> None:
    """Install the hooks with the interpreter's first scope."""
    global _baseline, _modules_watch, _finders_watch
    if _baseline:
        return
    _modules_watch = _interpool.watch_dicts([sys.modules], False)
    _finders_watch = _interpool.watch_dicts([sys.path_importer_cache], False)
    _environment.update(sys.modules)
    _baseline = frozenset(sys.modules) | lean_imports.known_names()
    sys.path_hooks.insert(0, _hook)
    _guard_threads()
    _guard_import_module()
    owners.find_owners(_owner)


def _take_change(watch: Any) -> bool:
    """Return whether the watched dict has changed since the last call."""
    return bool(_interpool.changed_dicts(watch))


def _forget_relative_paths() -> None:
    """Forget what Python found for relative paths, which mean other directories to other models."""
    for path in tuple(sys.path_importer_cache):
        if not os.path.isabs(path):
            sys.path_importer_cache.pop(path, None)


def _hook(path: str) -> FileFinder:
    """Path hook for directories of the entered scope; an ImportError leaves the path to other hooks."""
    if _entered is None or not os.path.isdir(path) or not _entered.claims(path):
        raise ImportError(path=path)
    return _entered.finder(path)


def _is_vendored(path: str) -> bool:
    """Return whether setuptools has added this entry, as it does at its first import."""
    file = attributes_of(sys.modules.get("setuptools")).get("__file__")
    return isinstance(file, str) and path == os.path.join(os.path.dirname(file), "_vendor")


def _is_environments(name: str, module: ModuleType | None) -> bool:
    return _environment.get(name, _MISSING) is module


def _spec(module: object) -> ModuleSpec | None:
    """Return a module's spec; None if it has none."""
    found = attributes_of(module).get("__spec__", _MISSING)
    if found is _MISSING:
        with suppress(Exception):
            found = getattr(module, "__spec__", None)  # of the module for which this object stands
    return found if issubclass(type(found), ModuleSpec) else None


def _unfinished(modules: Mapping[str, ModuleType]) -> set[str]:
    """Return the names of modules that a thread is importing at present, and of their submodules."""
    found = [name for name, module in modules.items() if is_importing(_spec(module))]
    return {name for name in modules if any(f"{name}.".startswith(f"{one}.") for one in found)}


def _is_of_library(top: str, module: ModuleType) -> bool:
    """Return whether a module is an instance of its own library's class, as in transformers."""
    return type(module) is not ModuleType and type(module).__module__.partition(".")[0] == top


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip(os.sep) + os.sep)


def _with_submodules(top: str) -> Iterator[tuple[str, ModuleType]]:
    prefix = top + "."
    return ((name, module) for name, module in sys.modules.items() if name == top or name.startswith(prefix))


def _users(used: dict[str, ModuleType], among: dict[str, ModuleType]) -> dict[str, ModuleType]:
    """Return ``used``, and the modules of ``among`` whose globals refer to them, directly or indirectly."""
    found = dict(used)
    new = found
    while new:
        names = new.keys()
        modules = {id(module) for module in new.values()}
        new = {
            name: module
            for name, module in among.items()
            if name not in found and _uses(name, module, names, modules)
        }
        found |= new
    return found


def _uses(name: str, module: ModuleType, names: Collection[str], modules: Collection[int]) -> bool:
    if lean_imports.is_deferred(module):
        return False  # a deferred module has no contents
    for value in tuple(attributes_of(module).values()):
        # type() runs no code of an instance, unlike isinstance().
        if issubclass(type(value), ModuleType):
            # Python sets submodules as attributes of their package.
            own_name = str(attributes_of(value).get("__name__"))
            if id(value) in modules and not own_name.startswith(name + "."):
                return True
        elif issubclass(type(value), (type, FunctionType)) and value.__module__ in names:
            return True
    return False


def _attach(modules: dict[str, ModuleType]) -> None:
    """Set modules as attributes of their packages, as an import does."""
    for name, module in modules.items():
        package, _, last = name.rpartition(".")
        if package in sys.modules:
            setattr(sys.modules[package], last, module)


def _detach(modules: dict[str, ModuleType]) -> dict[str, ModuleType]:
    """Remove modules from the attributes of packages that are not among them. Returns the removed ones."""
    found = {}
    for name, module in modules.items():
        package, _, last = name.rpartition(".")
        owner = sys.modules.get(package) if package and package not in modules else None
        if owner is None or lean_imports.is_deferred(owner):
            continue
        if attributes_of(owner).get(last, _MISSING) is module:
            delattr(owner, last)
            found[name] = module
    return found


def _names(directory: str, environment: Sequence[str]) -> set[str]:
    """Return the top-level names that can be imported from a directory.

    Args:
        directory: of a model.
        environment: the environment's ``sys.path``.

    Raises:
        ModuleConflict: one of them existed before any scope, from another place.
    """
    names = set()
    for entry in os.scandir(directory):
        name = _module_name(entry)
        if not name:
            continue
        is_package = entry.is_dir()
        if is_package and not any(Path(entry).glob("__init__.*")):
            # A folder of data or a namespace package counts only if no other module has the name.
            if name not in _baseline and not _can_import(name, environment):
                names.add(name)
        elif name not in _baseline:
            names.add(name)
        elif not _same_distribution(directory, name):
            raise ModuleConflict(
                f"{entry.path} would replace the module {name!r} that interpool itself has imported"
            )
    return names


def _can_import(name: str, path: Sequence[str]) -> bool:
    finders = (getattr(finder, "find_spec", None) for finder in sys.meta_path)
    return any(find(name, path) is not None for find in finders if find is not None)


def _module_name(entry: os.DirEntry[str]) -> str:
    name = entry.name
    if not entry.is_dir():
        suffix = next((suffix for suffix in all_suffixes() if name.endswith(suffix)), "")
        name = name.removesuffix(suffix) if suffix else ""
    return name if name.isidentifier() and name != "__main__" else ""  # __main__ is not imported


def _same_distribution(directory: str, name: str) -> bool:
    """Return whether pip installed into the directory the version that the environment has."""
    for found in importlib.metadata.distributions(path=[directory]):
        tops = {Path(file.parts[0]).name.partition(".")[0] for file in found.files or ()}
        if name in tops:
            try:
                return importlib.metadata.version(found.metadata["Name"]) == found.version
            except importlib.metadata.PackageNotFoundError:
                return False
    return False


# ---- threads that models start -----------------------------------------------------------------


def _guard_threads() -> None:
    """Guard import statements as soon as a scope starts a thread."""
    stock = threading.Thread.start

    def start(self: threading.Thread) -> None:
        """Override of ``threading.Thread.start``."""
        if _entered is not None:
            threading.Thread.start = stock  # type: ignore[method-assign]
            _guard_statements()
        stock(self)

    threading.Thread.start = start  # type: ignore[method-assign]


def _is_standard(name: str, scope: ModuleScope) -> bool:
    """Return whether a name means the standard library, to this scope and to the entered one."""
    top = name.partition(".")[0]
    own = top in scope._names or (_entered is not None and top in _entered._names)
    return top in sys.stdlib_module_names and not own


def _scope_out_of_place(globals_: dict[str, Any] | None) -> ModuleScope | None:
    """Return the scope of the module with these globals, unless it is entered."""
    spec = globals_.get("__spec__") if globals_ else None
    scope: ModuleScope | None = getattr(getattr(spec, "loader", None), "scope", None)
    return None if scope is _entered else scope


def _guard_import_module() -> None:
    """Override ``importlib.import_module``, which then resolves names in its caller's scope.

    Call it before a model can import the function by name.
    """
    stock = importlib.import_module

    @functools.wraps(stock)  # pickles refer to it by name
    def import_module(name: str, package: str | None = None) -> ModuleType:
        caller = sys._getframe().f_back  # None if C++ code calls
        scope = _scope_out_of_place(caller.f_globals if caller is not None else None)
        if scope is None or (not name.startswith(".") and _is_standard(name, scope)):
            return stock(name, package)
        return scope.lookup(importlib.util.resolve_name(name, package))

    importlib.import_module = import_module


_are_guarded = False


def _guard_statements() -> None:
    """Make import statements resolve names in their own module's scope, even if another is entered."""
    global _are_guarded
    if _are_guarded:
        return
    _are_guarded = True
    stock = builtins.__import__

    def import_(
        name: str,
        globals: dict[str, Any] | None = None,  # noqa: A002
        locals: dict[str, Any] | None = None,  # noqa: A002
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """Override of ``builtins.__import__``."""
        scope = _scope_out_of_place(globals)
        if scope is None:
            return stock(name, globals, locals, fromlist, level)
        if level:
            assert globals is not None
            name = importlib.util.resolve_name("." * level + name, globals.get("__package__"))
        elif _is_standard(name, scope):
            return stock(name, globals, locals, fromlist, level)
        return scope.find(name, fromlist)

    builtins.__import__ = import_  # type: ignore[assignment]
