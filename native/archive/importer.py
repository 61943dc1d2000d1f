"""The importer of hermetic archives: archived code runs as it did in its folder.

torch.package keeps an archive's modules where much of Python does not look. This importer adds them to
sys.modules, next to their data files, and makes importlib find them. A module whose import failed is removed.
"""

from __future__ import annotations

import builtins
import hashlib
import importlib.machinery
import importlib.util
import logging
import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from torch.package import PackageImporter

from interpool.native.archive.data_files import Folder, extract
from interpool.native.archive.format import MANIFEST_PACKAGE, NAMESPACE_SOURCE
from interpool.native.archive.import_views import VIEWED, View, views
from interpool.native.archive.resources import ArchivePath, ArchiveResources
from interpool.native.archive.unpickler import unpickle_checked
from interpool.native.archive.whole_names import WholeNames
from interpool.native.errors import ManifestError
from interpool.native.upstream.cpython_private import ModuleLock, forget_source_lines
from interpool.native.upstream.torch_private import (
    ExternNode,
    ModuleNode,
    PackageNode,
    package_imported_modules,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from importlib.resources.abc import Traversable
    from pathlib import Path

    from interpool.native.archive.format import Manifest
    from interpool.native.upstream.torch_private import PyTorchFileReader

_NAMESPACE_DIGEST = hashlib.sha256(NAMESPACE_SOURCE.encode()).hexdigest()


class HermeticImporter(PackageImporter):
    """Imports and unpickles from one archive.

    Its modules are in sys.modules under their mangled names (``<torch_package_0>.pkg.mod``) until
    ``close()``. The first import extracts the manifest's data files and the modules' sources into a folder,
    and ``__file__`` of all modules points there. So code that lists its own folder finds the packed files.

    Args:
        reader: the archive, whose structure has been checked.
        path: of the archive, for messages.
        manifest: the archive's manifest; None for a plain torch.package.

    Attributes:
        place: the path, and the number of the process's snapshot; 0 for the first snapshot of the path.

    Raises:
        ManifestError: it lists data files that the archive does not contain.
    """

    def __init__(self, reader: PyTorchFileReader, path: str, manifest: Manifest | None) -> None:
        self._data = {} if manifest is None else _data_digests(reader, path, manifest)
        self._folder: Folder | None = None
        self._closed = False
        self._views: dict[str, View] = {}
        self._loading: set[str] = set()
        self._sources: dict[str, str | None] = {}  # source members, by the names of modules that ran
        super().__init__(reader)
        self.filename = path
        self.place = (path, 0)
        self._whole_names = WholeNames(self)
        unpickle_checked(self, path)
        self._add_data_folders()
        self._files = self._data if manifest is None else self._data | self._source_digests(manifest)

    # ---- called by archived code and importlib ----------------------------------------------

    def id(self) -> str:
        """Return the prefix of its modules' names: ``<torch_package_0>``."""
        name: str = self._mangler.parent_name()
        return name

    @property
    def folder(self) -> Path | None:
        """The folder of its extracted files; None before the first import, or if it has no files."""
        return None if self._folder is None else self._folder.path

    def plain_name(self, module: str) -> str:
        """Return a module's name as the archive's sources write it."""
        name: str = self._mangler.demangle(module)
        return name

    def holds(self, module: str) -> bool:
        """Return whether a module of that name could come only from the archive."""
        return _is_inside(self.root.children.get(module.partition(".")[0]))

    def find_spec(self, module: str) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of an archived module without running it; None if it does not exist."""
        node = self._node(module)
        if node is None:
            return None
        if isinstance(node, ExternNode):
            return importlib.util.find_spec(module)
        is_package = isinstance(node, PackageNode)
        return importlib.machinery.ModuleSpec(module, self, origin=node.source_file, is_package=is_package)  # type: ignore[arg-type]

    def resources_of(self, module: str) -> Traversable:
        """Return the folder of a package of the archive, or of a module's package."""
        node = self._node(module)
        is_package = isinstance(node, PackageNode)
        package = module if is_package else module.rpartition(".")[0]
        member = package.replace(".", "/")
        if self.folder is None or self._closed:
            return ArchivePath(self, member)
        return self.folder / member

    def get_resource_reader(self, module: str) -> ArchiveResources:
        """Implement importlib's protocol for resources."""
        return ArchiveResources(self.resources_of(self.plain_name(module)))

    def get_source(self, module: str) -> str:
        """Return the source of a module, for tracebacks and ``inspect``.

        Raises:
            ImportError: the archive contains no such module.
        """
        node = self._node(self.plain_name(module))
        if node is None or isinstance(node, ExternNode):
            raise ImportError(f"{self.filename} holds no source of {module}", name=module)
        if node.source_file is None:
            return ""
        text: str = self.zip_reader.get_record(node.source_file).decode("utf-8")
        return text

    def get_data(self, path: str) -> bytes:
        """Return a member's content, by its name or by a path next to some module's ``__file__``.

        Raises:
            FileNotFoundError: the archive contains no such member.
        """
        name = self._mangler.demangle(path)
        if self._folder is not None and name.startswith(f"{self._folder.path}/"):
            name = os.path.relpath(name, self._folder.path)
        if not self.zip_reader.has_record(name):
            raise FileNotFoundError(2, f"{self.filename} holds no such file", name)
        content: bytes = self.zip_reader.get_record(name)
        return content

    def submodules(self, package: ModuleType) -> Iterator[tuple[str, bool]]:
        """Yield the last names in a package of the archive, and whether each is a package."""
        node = self._node(self.plain_name(package.__name__))
        for name, child in sorted(node.children.items()):
            if _is_inside(child):
                yield name, isinstance(child, PackageNode)

    # ---- overrides of torch.package's methods ------------------------------------------------

    def _add_file(self, filename: str) -> None:
        # A data folder may have the name of a module, which torch.package would refuse.
        if filename not in self._data or filename.endswith(".py"):
            super()._add_file(filename)

    def _source_digests(self, manifest: Manifest) -> dict[str, str]:
        """Return the digests of the modules' source members, by name."""
        digests = {}
        for name, done in manifest["modules"].items():
            node = self._node(name) if done["action"] == "intern" else None
            source = getattr(node, "source_file", None) or ""
            # The placeholder for a missing __init__.py is no file of the user.
            if manifest["files"].get(source, _NAMESPACE_DIGEST) != _NAMESPACE_DIGEST:
                digests[source] = manifest["files"][source]
        return digests

    def _add_data_folders(self) -> None:
        """Make data folders importable if no module has their name, as in Python."""
        for name in self._data:
            node: Any = self.root
            for atom in name.split("/")[:-1]:
                node = node.children.setdefault(atom, PackageNode(None))
                if not isinstance(node, PackageNode):
                    break

    def _install_on_parent(self, parent: str, name: str, module: ModuleType) -> None:
        # torch.package calls this before and after the module's code runs. A deferred module of torch knows
        # its loader: getattr() does not import its contents.
        if name not in self._sources and getattr(module, "__loader__", None) is self:
            self._introduce(name, module)
        super()._install_on_parent(parent, name, module)

    def _introduce(self, name: str, module: ModuleType) -> None:
        """Register a module with Python before its code runs."""
        source = module.__file__ and self.plain_name(module.__file__)
        self._sources[name] = source
        if self._closed:
            return  # an object outlived its package, so nothing would remove the module again
        if self._files and self._folder is None:
            self._folder = extract(self._files, self.zip_reader.get_record, self.filename)
        # Importing a module by name imports its top-level package, too.
        sys.modules.setdefault(self.id(), ModuleType(self.id())).__path__ = []
        sys.modules[module.__name__] = module
        if self._folder is None:
            return
        self._whole_names.add()
        if source:
            module.__file__ = str(self._folder.path / source)
        if isinstance(vars(module).get("__path__"), list):
            module.__path__[:] = [str(self._folder.path / name.replace(".", "/"))]

    def __import__(
        self,
        name: str,
        globals: Mapping[str, object] | None = None,  # noqa: A002
        locals: Mapping[str, object] | None = None,  # noqa: A002
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        """Handle import statements of the archive's code."""
        if isinstance(fromlist, list) and not fromlist and not level and not self.holds(name):
            # This is PyImport_Import and no import statement. C code of a library imports its own dependency,
            # with the globals of the archived code that called it.
            return builtins.__import__(name)
        return super().__import__(name, globals, locals, fromlist, level)  # type: ignore[no-untyped-call]

    def _gcd_import(self, name: str, package: str | None = None, level: int = 0) -> Any:
        # Archived code that imports its own __name__ passes a mangled name.
        return super()._gcd_import(self.plain_name(name), package, level)  # type: ignore[no-untyped-call]

    def _find_and_load(self, name: str) -> Any:
        if name in self.modules and name not in self._loading:
            return super()._find_and_load(name)  # type: ignore[no-untyped-call]
        # As in Python, another thread waits until the module is complete.
        lock = ModuleLock(self._mangler.mangle(name))
        try:
            lock.__enter__()
        except RuntimeError:
            # Another thread loads it and waits for a module that this thread loads. As in any circular
            # import, this thread continues with the incomplete module.
            if name not in self.modules:
                raise
            return super()._find_and_load(name)  # type: ignore[no-untyped-call]
        try:
            return super()._find_and_load(name)  # type: ignore[no-untyped-call]
        finally:
            lock.__exit__(None, None, None)

    def _load_module(self, name: str, parent: str) -> Any:
        self._loading.add(name)
        try:
            module = super()._load_module(name, parent)
        except BaseException:
            self._forget(name)
            raise
        finally:
            self._loading.discard(name)
        if name in self._sources:
            # A module may replace itself in sys.modules.
            found = sys.modules.get(self._mangler.mangle(name), module)
            module = self.modules[name] = found
        if name in VIEWED and module is sys.modules.get(name):
            if name not in self._views:  # importlib_resources may be imported after the others
                self._views = views(self) | self._views
            module = self.modules[name] = self._views[name]
        return module

    def _forget(self, name: str) -> None:
        """Remove a module whose code raised, as Python does: the next import runs it again."""
        if name not in self._sources:
            return
        del self._sources[name]
        module = self.modules.pop(name)
        sys.modules.pop(module.__name__, None)
        package_imported_modules.pop(module.__name__, None)
        parent, _, last = name.rpartition(".")
        if parent and vars(self.modules[parent]).get(last) is module:
            delattr(self.modules[parent], last)

    def _node(self, module: str) -> Any:
        node: Any = self.root
        for atom in module.split("."):
            if not isinstance(node, PackageNode):
                return node if isinstance(node, ExternNode) else None
            node = node.children.get(atom)
        return node

    @property
    def storage_context(self) -> Any:
        """Storages for TorchScript modules while an object is unpickled; they read all others."""
        return self._storage_context

    @storage_context.setter
    def storage_context(self, context: Any) -> None:
        self._storage_context = context
        if context is not None and hasattr(self.zip_reader, "script_storages"):
            for name, storage in self.zip_reader.script_storages():
                context.add_storage(name, storage)

    # ---- the end -----------------------------------------------------------------------------

    def close(self) -> None:
        """Remove the modules and the data files. Objects from the archive still work."""
        self._closed = True
        self._whole_names.remove()
        for name in self._sources:
            sys.modules.pop(self._mangler.mangle(name), None)
        sys.modules.pop(self.id(), None)
        loggers = logging.root.manager.loggerDict  # loggers that modules named after themselves
        for name in [name for name in loggers.copy() if name.partition(".")[0] == self.id()]:
            loggers.pop(name, None)
        prefixes: tuple[str, ...] = (self.id(),)
        if self._folder is not None:
            prefixes += (f"{self._folder.path}/",)
            self._folder.release()
        forget_source_lines(prefixes)


def _is_inside(node: Any) -> bool:
    """Return whether a node of the archive's tree contains anything but external modules."""
    if isinstance(node, PackageNode):
        children = node.children.values()
        return node.source_file is not None or not children or any(map(_is_inside, children))
    return isinstance(node, ModuleNode)


def _data_digests(reader: Any, path: str, manifest: Manifest) -> dict[str, str]:
    """Return the digests of the manifest's data files, by name; "" for an empty folder."""
    digests = {}
    for name in manifest["data"]:
        # A name that ends in a slash is an empty folder, and no member.
        empty_folder = name.endswith("/")
        parts = name.removesuffix("/").split("/")
        strange = not {"", ".", ".."}.isdisjoint(parts) or parts[0] in (".data", MANIFEST_PACKAGE)
        held = empty_folder or (name in manifest["files"] and reader.has_record(name))
        if strange or not held or "\0" in name:
            raise ManifestError(
                f"{path}: its manifest lists {name!r} as a data file, and it holds none of that name. "
                "Pack it again with `interpool pack`.",
                "data",
            )
        digests[name] = "" if empty_folder else manifest["files"][name]
    return digests
