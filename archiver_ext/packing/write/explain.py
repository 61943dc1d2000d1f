"""Explains why modules cannot be packed, starting with the user's own line."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from interpool.archiver_ext.packing.decide.rules import module_file
from interpool.archiver_ext.packing.jobs import Fault
from interpool.archiver_ext.source_lines import lines_of, source_line
from interpool.native.archive.format import Origin
from interpool.native.upstream.torch_private import OWN_MODULES, PackagingErrorReason

if TYPE_CHECKING:
    from interpool.archiver_ext.packing.write.exporter import HermeticExporter

_SHOWN = 5

_REASONS = {
    PackagingErrorReason.IS_EXTENSION_MODULE: (
        "is compiled code, which no archive can hold",
        "install it where the model is served and add --extern {glob}",
    ),
    PackagingErrorReason.NO_DUNDER_FILE: (
        "has no source file",
        "take it from the server with --extern {glob} , or leave it out with --mock {module}",
    ),
    PackagingErrorReason.SOURCE_FILE_NOT_FOUND: (
        "has no Python source that could be read",
        "take it from the server with --extern {glob} , or leave it out with --mock {module}",
    ),
    PackagingErrorReason.DEPENDENCY_RESOLUTION_FAILED: (
        "has source whose imports cannot be resolved",
        "fix its import statements, or take it from the server with --extern {glob}",
    ),
    PackagingErrorReason.DENIED: (
        "is denied by {reason}",
        "remove the import, or leave the module out with --mock {module}",
    ),
    PackagingErrorReason.MOCKED_BUT_STILL_USED: (
        "is mocked by {reason}, but the object to pack holds instances of its classes",
        "take it from the server with --extern {glob} , or put it in with --intern {glob}",
    ),
}


@dataclass(frozen=True)
class _Cause:
    """The first import of a module: ``line`` is "" for the pickled object itself."""

    line: str
    chain: tuple[str, ...]


def explain_failure(exporter: HermeticExporter, spec: str) -> str:
    """Return the message for an export that torch.package refused.

    Args:
        exporter: after its close() raised.
        spec: the SPEC being packed.
    """
    broken = {
        name: node["error"] for name, node in exporter.dependency_graph.nodes.items() if "error" in node
    }
    grouped: dict[tuple[str, PackagingErrorReason], list[tuple[str, _Cause]]] = defaultdict(list)
    for name, reason in broken.items():
        cause = _find_cause(exporter, name)
        grouped[cause.line, reason].append((name, cause))
    blocks = [
        _block(exporter, spec, line, reason, modules)
        for (line, reason), modules in sorted(grouped.items(), key=lambda item: not item[0][0])
    ]
    return "\n\n".join(blocks)


def broken_modules(exporter: HermeticExporter) -> dict[str, Fault]:
    """Return modules that torch.package refused and the user has not decided about, with the fault."""
    return {
        name: Fault(_REASONS.get(node["error"], (str(node["error"].value), ""))[0].format(reason="the rules"))
        for name, node in exporter.dependency_graph.nodes.items()
        if "error" in node and may_change(exporter, name)
    }


def may_change(exporter: HermeticExporter, module: str) -> bool:
    """Return whether the rules, and not the user, decided about a third-party module.

    Args:
        exporter: with all its modules added.
        module: dotted name.
    """
    verdict = exporter.verdicts.get(module)
    return verdict is not None and bool(verdict.glob) and verdict.origin is not Origin.USER


def glob_of(exporter: HermeticExporter, module: str) -> str:
    """Return the glob for a module in an option: its package, or for the user's modules its own name.

    Args:
        exporter: with all its modules added.
        module: dotted name.
    """
    package = exporter.rules.package_of(module)
    return f"{package}.**" if package else module


def cause_line(exporter: HermeticExporter, spec: str, module: str) -> str:
    """Return the user's line nearest to a module's import, or a description of the object itself.

    Args:
        exporter: with all its modules added.
        spec: the SPEC being packed.
        module: dotted name.
    """
    return find_line(exporter, module) or _the_object(spec)


def find_line(exporter: HermeticExporter, module: str) -> str:
    """Return the user's line nearest to a module's import, ``path:line: text``; "" for the object itself.

    Args:
        exporter: with all its modules added.
        module: dotted name.
    """
    return _find_cause(exporter, module).line


def _the_object(spec: str) -> str:
    return f"the object that {spec} gives"


def _block(
    exporter: HermeticExporter,
    spec: str,
    line: str,
    reason: PackagingErrorReason,
    modules: list[tuple[str, _Cause]],
) -> str:
    what, hint = _REASONS.get(reason, (str(reason.value), "choose another action for it"))
    first = modules[0][0]
    verdict = exporter.verdicts.get(first)
    words = {
        "glob": glob_of(exporter, first),
        "module": first,
        "reason": verdict.reason if verdict is not None else "",
    }
    head = line or _the_object(spec)
    text = [f"{head}\n  needs {first}, which {what.format(**words)}"]
    chain = modules[0][1].chain
    if len(chain) > 2:
        text.append("  by way of " + " -> ".join(chain))
    if len(modules) > 1:
        others = ", ".join(name for name, _ in modules[1 : 1 + _SHOWN])
        more = len(modules) - 1 - _SHOWN
        text.append(f"  and so are {others}" + (f" and {more} more" if more > 0 else ""))
    text.append("  What to do: " + hint.format(**words))
    return "\n".join(text)


def _find_cause(exporter: HermeticExporter, module: str) -> _Cause:
    """Find the user's line nearest to the module, and the modules from there to it."""
    came_from: dict[str, str] = {}
    waiting = deque([module])
    pickled: tuple[str, ...] = ()
    while waiting:
        name = waiting.popleft()
        for user in exporter.get_rdeps(name):
            if user in came_from or user == module:
                continue
            came_from[user] = name
            if user.startswith("<"):
                pickled = pickled or _chain(came_from, user, module)[1:]
            elif exporter.is_own(user) and (line := own_line(exporter, user, name)):
                return _Cause(line, _chain(came_from, user, module))
            waiting.append(user)
    return _Cause("", pickled)


def _chain(came_from: dict[str, str], start: str, end: str) -> tuple[str, ...]:
    chain = [start]
    while chain[-1] != end:
        chain.append(came_from[chain[-1]])
    return tuple(chain)


def own_line(exporter: HermeticExporter, user: str, imported: str) -> str:
    """Return the line where ``user`` imports ``imported``, as ``path:line: text``; "" if unknown.

    Args:
        exporter: with all its modules added.
        user: dotted name of a module of the project.
        imported: dotted name of the imported module.
    """
    for site in exporter.import_sites(user):
        if imported in site.modules:
            return source_line(shown_path(exporter, user), site.line, site.text)
    line = exporter.computed.get(user, {}).get(imported)
    if line is None:
        return ""
    text = lines_of(str(exporter.dependency_graph.nodes[user].get("source") or ""))[line - 1 : line]
    return source_line(shown_path(exporter, user), line, "".join(text))


def shown_path(exporter: HermeticExporter, module: str) -> str:
    """Return a module's file, relative to the project's root if possible.

    Args:
        exporter: for the root.
        module: dotted name.
    """
    path = module_file(module)
    if path is None:
        return module
    try:
        return str(Path(path).resolve().relative_to(exporter.rules.root))
    except ValueError:
        return str(path)


@dataclass(frozen=True)
class Dropped:
    """The project's imports that fail in the archive, one text for each line.

    Attributes:
        at_import: imports that run when their module is imported.
        lazy: imports in functions that were not called during packing.
    """

    at_import: list[str]
    lazy: list[str]


def dropped_imports(exporter: HermeticExporter) -> Dropped:
    """Return the project's imports of modules that cannot be imported here.

    torch.package silently omits such modules, and so does our exporter for ``importlib.import_module``.
    """
    lines: dict[str, tuple[bool, list[str]]] = {}
    for name in exporter.names("intern"):
        if not exporter.is_own(name):
            continue
        for site in exporter.import_sites(name):
            if (site.guarded and not site.dynamic) or _known(exporter, site.modules):
                continue
            if site.dynamic and exporter.rules.verdict(site.modules[0]).action not in ("intern", "mock"):
                continue  # the server may have it
            where = source_line(shown_path(exporter, name), site.line, site.text)
            lines.setdefault(where, (site.lazy, []))[1].append(site.modules[0])
    found = Dropped([], [])
    for where, (lazy, names) in lines.items():
        said = (
            f"{where}\n  {', '.join(names)} could not be imported here, so it is not in the archive: "
            "the line fails if it runs where the model is served"
        )
        (found.lazy if lazy else found.at_import).append(said)
    return found


def _known(exporter: HermeticExporter, modules: tuple[str, ...]) -> bool:
    return any(
        module in exporter.dependency_graph.nodes or module.startswith(OWN_MODULES[0]) for module in modules
    )
