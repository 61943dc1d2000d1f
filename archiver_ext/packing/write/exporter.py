"""torch.package's exporter with our rules, and without its silent failures."""

from __future__ import annotations

import contextlib
import re
import sys
from typing import TYPE_CHECKING, Any

import torch
from torch.package import PackageExporter

from interpool.archiver_ext.packing.decide.rules import RuleAction, Rules, Verdict, module_file
from interpool.archiver_ext.packing.dotted_names import with_parents
from interpool.archiver_ext.packing.observe.imports import ImportSite, find_imports
from interpool.native.archive.format import ENTRY_PACKAGE, NAMESPACE_SOURCE
from interpool.native.upstream.torch_private import (
    OWN_MODULES,
    REDUCE_PACKAGE,
    REDUCED,
    PackagingErrorReason,
    compiled_modules_as_plain,
    fx_graphs_without_owners,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from types import ModuleType

# torch.package knows `os.path`, whose parent is no package, only after `os` was imported in the archive.
# Every reader imports the entry's package first.
_ENTRY_SOURCE = "import os\n"

# PEP 263: an encoding in the first two lines. The first must be a comment or empty, and counts if both have
# one.
_ENCODING = re.compile(r"\A((?:[ \t\f]*(?:#[^\n]*)?\n)??[ \t\f]*#[^\n]*?coding[:=][ \t]*)([-\w.]+)")


_WEIGHTS = (torch.UntypedStorage, torch.storage.TypedStorage)


class HermeticExporter(PackageExporter):
    """Writes a torch.package of one object by the project's rules.

    Differences from the base class: ``rules`` decides about every module. Parent packages of interned modules
    are added, and modules that the project imports by import_module. A module of the project may have the
    name of a standard library module. The package of an external submodule is external, too. Equal objects
    give equal bytes.

    Attributes:
        verdicts: the decision for each module met, by dotted name.
        computed: modules imported by computed names, with the line, by importer.
        has_compiled: whether a compiled module was pickled; it is written as before torch.compile.
    """

    def __init__(self, archive: Path, rules: Rules) -> None:
        super().__init__(str(archive))
        self.rules = rules
        self.verdicts: dict[str, Verdict] = {}
        self.computed: Mapping[str, Mapping[str, int]] = {}
        self.has_compiled = False
        self._deferred: dict[str, bool] | None = None
        self._reduced: dict[int, int] = {}
        if mocked := rules.globs.get("mock"):
            # Before all verdicts: torch.package checks a pickle's classes against it.
            self.mock(mocked)

    @contextlib.contextmanager
    def deferring(self) -> Iterator[dict[str, bool]]:
        """Defer decisions about modules to the end of the block; yields their names as they are met.

        So an object can be pickled before it runs, although its modules are decided by the run.
        """
        deferred: dict[str, bool] = {}
        self._deferred = deferred
        try:
            yield deferred
        finally:
            self._deferred = None
        for module_name, dependencies in deferred.items():
            self.add_dependency(module_name, dependencies)

    def add_dependency(self, module_name: str, dependencies: bool = True) -> None:
        """Decide about one module that the archive needs.

        Args:
            module_name: dotted name.
            dependencies: whether to scan its source for imports.
        """
        if module_name in self.verdicts:
            return
        if self._deferred is not None:
            self._deferred[module_name] = dependencies
            return
        if module_name in OWN_MODULES:
            super().add_dependency(module_name, dependencies)
            return
        verdict = self.rules.verdict(module_name)
        self.verdicts[module_name] = verdict
        if verdict.action == "intern":
            self._add_source(module_name, dependencies)
            return
        if verdict.action == "deny":
            # Not by a pattern, because torch.package handles the standard library before patterns.
            self.dependency_graph.add_node(module_name, error=PackagingErrorReason.DENIED)
            return
        # The pattern is only this name; our rules decide about all others.
        if verdict.action == "extern":
            self.extern(module_name)
        else:
            self.mock(module_name)
        super().add_dependency(module_name, dependencies)

    def _add_source(self, module_name: str, dependencies: bool) -> None:
        module = sys.modules.get(module_name)
        if module is not None and _is_namespace(module):
            self.save_source_string(module_name, NAMESPACE_SOURCE, is_package=True, dependencies=False)
        else:
            self.save_module(module_name, dependencies)
        parent = module_name.rpartition(".")[0]
        # torch.package would omit the parent's __init__.py, and with it all registrations in its code.
        if parent:
            self.dependency_graph.add_edge(module_name, parent)
            self.add_dependency(parent)
        self._follow_import_module(module_name)
        # Sorted, because the order of a directory depends on the file system.
        for imported in sorted(self.computed.get(module_name, ())):
            self.dependency_graph.add_edge(module_name, imported)
            self.add_dependency(imported)

    def _get_source_of_module(self, module: ModuleType) -> str | None:
        # Archives contain sources as UTF-8, so correct the encoding in the first lines.
        source: str | None = super()._get_source_of_module(module)
        return source if source is None else _ENCODING.sub(r"\1utf-8", source)

    def _follow_import_module(self, module_name: str) -> None:
        """Add modules that the project imports by ``importlib.import_module`` with a literal name."""
        if not self.is_own(module_name):
            return
        for site in self.import_sites(module_name):
            if site.dynamic and module_file(site.modules[0]) is not None:
                self.dependency_graph.add_edge(module_name, site.modules[0])
                self.add_dependency(site.modules[0])

    def _persistent_id(self, obj: object) -> Any:
        # Look up the method in the type, as pickle does for its own: an object may answer to any name.
        # Weights need the base class, too.
        if not hasattr(type(obj), REDUCE_PACKAGE) and not isinstance(obj, _WEIGHTS):
            return None
        # torch uses addresses as numbers here; equal models must give equal bytes.
        found = super()._persistent_id(obj)  # type: ignore[no-untyped-call]
        if isinstance(found, tuple) and found[0] == REDUCED:
            number = self._reduced.setdefault(found[1], len(self._reduced))
            return (found[0], number, *found[2:])
        return found

    def save_pickle(
        self,
        package: str,
        resource: str,
        obj: Any,
        dependencies: bool = True,
        pickle_protocol: int = 3,
    ) -> None:
        """Write an object; see the base class.

        Args:
            package: dotted name of the package in the archive.
            resource: the pickle's name in that package.
            obj: the object; compiled modules in it are written as before torch.compile.
            dependencies: whether to add the modules that the pickle needs.
            pickle_protocol: the pickle's protocol.
        """
        with compiled_modules_as_plain(self._note_compiled), fx_graphs_without_owners():
            super().save_pickle(package, resource, obj, dependencies, pickle_protocol)

    def _note_compiled(self) -> None:
        self.has_compiled = True

    def save_file(self, name: str, content: bytes) -> None:
        """Add a member by its path below the archive's root, which save_binary does not support.

        Args:
            name: the member's path below the root.
            content: its bytes.
        """
        self._write(name, content)  # type: ignore[no-untyped-call]

    def close(self) -> None:
        """Write the rest. The exporter cannot be used afterwards.

        Raises:
            torch.package.PackagingError: a module cannot be packed as decided.
            RuntimeError: the rest cannot be written.
        """
        self._add_external_parents()
        if "os.path" in self.verdicts:
            self.save_source_string(ENTRY_PACKAGE, _ENTRY_SOURCE, is_package=True)
        super().close()  # type: ignore[no-untyped-call]

    def _finalize_zip(self) -> None:
        # torch calls this in a destructor, where an error ends the process.
        self.zip_file.write_end_of_file()
        super()._finalize_zip()  # type: ignore[no-untyped-call]

    def give_up(self) -> None:
        """Stop writing after a failed write, so that torch's destructor does not write, either."""
        with contextlib.suppress(RuntimeError):
            self.zip_file.write_end_of_file()

    def _add_external_parents(self) -> None:
        # If only `os.path` were external, `import os.path` in the archive would create an empty package `os`.
        inside = {each for name in self.names("intern", "mock") for each in with_parents(name)}
        for name in self.names("extern"):
            for each in with_parents(name):
                if each not in inside and self.rules.verdict(each).action == "extern":
                    self.add_dependency(each)
                    break

    def names(self, *actions: RuleAction) -> list[str]:
        """Return modules with one of these verdicts, in the order they were met."""
        return [name for name, verdict in self.verdicts.items() if verdict.action in actions]

    def import_sites(self, module_name: str) -> list[ImportSite]:
        """Return the imports in an interned module's source, in order."""
        node = self.dependency_graph.nodes.get(module_name, {})
        source = node.get("source")
        if not isinstance(source, str):
            return []
        return find_imports(source, module_name, bool(node.get("is_package")))

    def is_own(self, module_name: str) -> bool:
        """Return whether the archive contains the module as the user's own source, by any rule."""
        verdict = self.verdicts.get(module_name)
        return verdict is not None and verdict.action == "intern" and not self.rules.package_of(module_name)


def _is_namespace(module: object) -> bool:
    return getattr(module, "__file__", None) is None and hasattr(module, "__path__")
