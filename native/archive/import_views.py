"""Versions of importlib and pkgutil for an archive's code.

Their functions take modules by name and search sys.modules and sys.path, which do not contain the archive's
modules. These versions search the archive first.
"""

from __future__ import annotations

import functools
import importlib
import importlib.resources
import importlib.util
import pkgutil
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from importlib.resources.abc import Traversable
from types import ModuleType
from typing import Any, Protocol

VIEWED = ("importlib", "importlib.resources", "importlib.util", "importlib_resources", "pkgutil")
"""The modules that are replaced for archived code."""

_WITH_RESOURCES = (
    "contents", "files", "is_resource", "open_binary", "open_text", "path", "read_binary", "read_text",
)  # fmt: skip


class Archive(Protocol):
    """The methods of HermeticImporter that this module uses."""

    modules: dict[str, ModuleType]

    def plain_name(self, module: str) -> str:
        """Return a module's name as the archive's sources write it."""
        ...

    def holds(self, module: str) -> bool:
        """Return whether a module of that name could come only from the archive."""
        ...

    def import_module(self, name: str, /) -> Any:
        """Import the module of that name."""
        ...

    def find_spec(self, module: str) -> ModuleSpec | None:
        """Return its spec without running it."""
        ...

    def submodules(self, package: ModuleType) -> Iterator[tuple[str, bool]]:
        """Yield the names in a package of the archive, and whether each is a package."""
        ...

    def resources_of(self, module: str) -> Traversable:
        """Return the folder of a package of the archive, or of a module's package."""
        ...


class View(ModuleType):
    """A module with some of its names replaced.

    Args:
        module: the original module; attributes set on the view do not change it.
        replaced: names and their replacements.
    """

    def __init__(self, module: ModuleType, replaced: dict[str, Any]) -> None:
        super().__init__(module.__name__)
        self.__dict__.update(module.__dict__)
        self.__dict__.update(replaced)
        self._behind = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._behind, name)  # for example, a submodule that was imported later


def views(importer: Archive) -> dict[str, View]:
    """Return replacements of the imported modules in VIEWED, by name, for one archive's code."""
    util = View(importlib.util, {"find_spec": _find_spec(importer)})
    resources = _resources(importer, importlib.resources)
    backport = sys.modules.get("importlib_resources")
    import_module, iter_modules = _import_module(importer), _iter_modules(importer)
    whole = View(importlib, {"import_module": import_module, "resources": resources, "util": util})
    packages = View(
        pkgutil,
        {
            "get_data": _get_data(importer),
            "iter_modules": iter_modules,
            "walk_packages": _walk_packages(import_module, iter_modules),
        },
    )
    backports = [] if backport is None else [_resources(importer, backport)]
    return {view.__name__: view for view in (whole, resources, util, packages, *backports)}


def _resources(importer: Archive, module: ModuleType) -> View:
    stock = {name: getattr(module, name) for name in _WITH_RESOURCES if hasattr(module, name)}
    return View(module, {name: _of_package(importer, function) for name, function in stock.items()})


def _absolute(importer: Archive, name: str, package: str | None) -> str:
    if name.startswith("."):
        name = importlib.util.resolve_name(name, importer.plain_name(package or ""))
    return importer.plain_name(name)


def _import_module(importer: Archive) -> Callable[..., ModuleType]:
    def import_module(name: str, package: str | None = None) -> ModuleType:
        """Override of ``importlib.import_module``."""
        wanted = _absolute(importer, name, package)
        if importer.holds(wanted):
            found: ModuleType = importer.import_module(wanted)
            return found
        return importlib.import_module(name, package)

    return import_module


def _find_spec(importer: Archive) -> Callable[..., ModuleSpec | None]:
    def find_spec(name: str, package: str | None = None) -> ModuleSpec | None:
        """Override of ``importlib.util.find_spec``."""
        wanted = _absolute(importer, name, package)
        if importer.holds(wanted):
            return importer.find_spec(wanted)
        return importlib.util.find_spec(name, package)

    return find_spec


def _get_data(importer: Archive) -> Callable[[str, str], bytes | None]:
    def get_data(package: str, resource: str) -> bytes | None:
        """Override of ``pkgutil.get_data``."""
        wanted = importer.plain_name(package)
        if importer.holds(wanted):
            return importer.resources_of(wanted).joinpath(resource).read_bytes()
        return pkgutil.get_data(package, resource)

    return get_data


def _iter_modules(importer: Archive) -> Callable[..., Iterator[pkgutil.ModuleInfo]]:
    def iter_modules(path: Any = None, prefix: str = "") -> Iterator[pkgutil.ModuleInfo]:
        """Override of ``pkgutil.iter_modules``; identifies a package's ``__path__`` by identity."""
        for module in list(importer.modules.values()):
            known = vars(module)
            # Modules of the server are among them, too.
            if path is not None and known.get("__path__") is path and known.get("__loader__") is importer:
                for name, is_package in importer.submodules(module):
                    yield pkgutil.ModuleInfo(importer, prefix + name, is_package)
                return
        yield from pkgutil.iter_modules(path, prefix)

    return iter_modules


def _walk_packages(
    import_module: Callable[..., ModuleType], iter_modules: Callable[..., Iterator[pkgutil.ModuleInfo]]
) -> Callable[..., Iterator[pkgutil.ModuleInfo]]:
    def walk_packages(
        path: Any = None, prefix: str = "", onerror: Callable[[str], object] | None = None
    ) -> Iterator[pkgutil.ModuleInfo]:
        """Override of ``pkgutil.walk_packages``, which would import packages from outside of the archive."""
        for info in iter_modules(path, prefix):
            yield info
            if not info.ispkg:
                continue
            try:
                package = import_module(info.name)
            except Exception as error:
                if onerror is not None:
                    onerror(info.name)
                elif not isinstance(error, ImportError):
                    raise
            else:
                inside = getattr(package, "__path__", ())  # iter_modules needs the same object
                yield from walk_packages(inside, f"{info.name}.", onerror)

    return walk_packages


def _of_package(importer: Archive, stock: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``stock``, whose first argument is a package or its name.

    ``files`` may omit it, in importlib_resources and from Python 3.12 on.
    """

    @functools.wraps(stock)
    def call(*args: Any, **kwargs: Any) -> Any:
        if args:
            args = (_module(importer, args[0]), *args[1:])
        for keyword in {"package", "anchor"} & kwargs.keys():
            kwargs[keyword] = _module(importer, kwargs[keyword])
        if not args and not kwargs:
            args = (_module(importer, sys._getframe(1).f_globals["__name__"]),)
        return stock(*args, **kwargs)

    return call


def _module(importer: Archive, package: Any) -> Any:
    if isinstance(package, str) and importer.holds(importer.plain_name(package)):
        return importer.import_module(package)
    return package
