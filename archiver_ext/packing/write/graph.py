"""Lists the importers of each module, with the lines of the import statements."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from interpool.native.archive.format import ENTRY_PACKAGE

if TYPE_CHECKING:
    from interpool.archiver_ext.packing.write.exporter import HermeticExporter
    from interpool.native.archive.format import Importer

_PICKLE = f"<{ENTRY_PACKAGE}."


def importers(exporter: HermeticExporter) -> dict[str, list[Importer]]:
    """Return the importers of each module that was met, by dotted name, sorted.

    An importer occurs once for each line that imports the module. Its line is 0 if there is no such line: for
    a pickle that contains the module's objects, and for a submodule of the module. If only its submodules
    need an external package, they are its importers.

    Args:
        exporter: closed or not, with all its modules added.
    """
    asked: dict[str, set[str]] = defaultdict(set)
    for user, module in exporter.dependency_graph.edges:
        # The entry's package imports what readers need, not what the model needs.
        if user != ENTRY_PACKAGE:
            asked[user].add(module)
    found: dict[str, set[tuple[str, int]]] = {name: set() for name in exporter.verdicts}
    for user, modules in asked.items():
        lines = _lines(exporter, user, modules)
        for module in modules & found.keys():
            found[module].update((_shown(user), line) for line in lines.get(module, (0,)))
    for name in exporter.names("extern"):
        top = name.partition(".")[0]
        if top != name and top in found and all(user.startswith(f"{top}.") for user, _ in found[top]):
            found[top].add((name, 0))
    return {
        module: [{"module": user, "line": line} for user, line in sorted(users)]
        for module, users in found.items()
    }


def _lines(exporter: HermeticExporter, user: str, modules: set[str]) -> dict[str, list[int]]:
    lines: dict[str, list[int]] = defaultdict(list)
    for site in exporter.import_sites(user):
        # `from a import b` imports the module a.b if it exists, otherwise a.
        module = next((name for name in site.modules if name in modules), None)
        if module is not None:
            lines[module].append(site.line)
    for module, line in exporter.computed.get(user, {}).items():
        if module in modules and module not in lines:
            lines[module].append(line)
    return lines


def _shown(user: str) -> str:
    """Return the member's name for a pickle's node, ``<interpool-archive.entry.pkl>``."""
    if user.startswith(_PICKLE):
        return f"{ENTRY_PACKAGE}/{user.removeprefix(_PICKLE).removesuffix('>')}"
    return user
