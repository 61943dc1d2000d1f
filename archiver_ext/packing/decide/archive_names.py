"""Refuses modules whose names an archive cannot contain.

``importlib.import_module`` accepts any file name, and names that differ only by case.
"""

from __future__ import annotations

import sys
import unicodedata
from typing import TYPE_CHECKING

from interpool.archiver_ext.errors import PackError
from interpool.archiver_ext.packing.write.explain import cause_line, glob_of
from interpool.native.archive.format import is_dotted_name, is_module_name

if TYPE_CHECKING:
    from interpool.archiver_ext.packing.write.exporter import HermeticExporter

LONGEST_NAME = 480
"""Bytes in a member's name: torch reads 511, including the archive's root folder."""


def check_names(exporter: HermeticExporter, spec: str) -> None:
    """Refuse names that readers of archives do not accept.

    Args:
        exporter: with all its modules added, not closed.
        spec: the SPEC being packed.

    Raises:
        PackError: names the user's line nearest to the module, and what to do.
    """
    known: dict[str, str] = {}
    for name in exporter.names("intern", "mock", "extern"):
        is_extern = exporter.verdicts[name].action == "extern"
        other = name if is_extern else known.setdefault(source_member(exporter, name).lower(), name)
        if other != name:
            what = f"whose name is that of {other} except for its case, which torch.package ignores"
            _refuse(exporter, spec, name, what, "rename one of the two")
        if is_extern and not is_dotted_name(name):
            what = "which is to be taken from the server, where only an identifier can name a module"
            _refuse(exporter, spec, name, what, "rename its file or folder, or have it packed")
        if not is_extern and not _is_possible(name, source_member(exporter, name)):
            what = (
                "a name that no archive can hold: its parts must be of letters, digits, _ and -, in composed "
                f"form, and all of it {LONGEST_NAME} bytes at most"
            )
            _refuse(exporter, spec, name, what, "rename its file or folder")


def source_member(exporter: HermeticExporter, module: str) -> str:
    """Return the member's name for the source of an interned or mocked module.

    Args:
        exporter: with all its modules added.
        module: dotted name.
    """
    node = exporter.dependency_graph.nodes.get(module, {})
    is_package = node.get("is_package", hasattr(sys.modules.get(module), "__path__"))
    return f"{module.replace('.', '/')}{'/__init__.py' if is_package else '.py'}"


def _is_possible(name: str, member: str) -> bool:
    composed = unicodedata.normalize("NFC", name) == name
    return composed and is_module_name(name) and len(member.encode()) <= LONGEST_NAME


def _refuse(exporter: HermeticExporter, spec: str, module: str, what: str, advice: str) -> None:
    verdict = exporter.verdicts[module]
    # Users cannot rename third-party modules.
    others = bool(verdict.glob) and verdict.action != "extern"
    instead = f", or take it from the server with --extern {glob_of(exporter, module)}" if others else ""
    raise PackError(
        f"{cause_line(exporter, spec, module)}\n  needs {module!r}, {what}\n  What to do: {advice}{instead}"
    )
