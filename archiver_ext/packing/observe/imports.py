"""Finds the import statements of a source file, with their lines.

torch.package finds the same imports without lines, but messages must name the user's line.
"""

from __future__ import annotations

import ast
import importlib.util
from dataclasses import dataclass
from typing import TYPE_CHECKING

from interpool.archiver_ext.source_lines import lines_of

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class ImportSite:
    """One imported name.

    Attributes:
        modules: the modules that it may mean, most specific first: ``from a import b`` may mean ``a.b`` or
            ``a``.
        line: line number, from 1.
        text: the line, stripped.
        guarded: inside ``try`` or ``with suppress(…)``, or an ``if`` that every server decides as this
            machine does, so that it may fail.
        dynamic: an ``importlib.import_module`` call with a literal name. A relative name needs
            ``__package__``, a literal, or a package's ``__name__`` as its package.
        lazy: in a function's body, or a ``lazy import`` of Python 3.15, so that importing the module does not
            run it.
    """

    modules: tuple[str, ...]
    line: int
    text: str
    guarded: bool
    dynamic: bool
    lazy: bool


def find_imports(source: str, module: str, is_package: bool) -> list[ImportSite]:
    """Return all imports in the source of ``module``, in order; none if it has a syntax error.

    Args:
        source: the text.
        module: its dotted name, for relative imports.
        is_package: whether it is an ``__init__.py``.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return []
    return list(_Walker(module, is_package, lines_of(source)).walk(tree, guarded=False, lazy=False))


_DECIDED = ("TYPE_CHECKING", "__name__", "platform", "version_info", "hexversion")


class _Walker:
    def __init__(self, module: str, is_package: bool, lines: list[str]) -> None:
        self._module = module
        self._package = module if is_package else module.rpartition(".")[0]
        self._lines = lines

    def walk(self, node: ast.AST, guarded: bool, lazy: bool) -> Iterator[ImportSite]:
        lazy = lazy or bool(getattr(node, "is_lazy", 0))
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield self._site(node, (alias.name,), guarded, lazy)
        elif isinstance(node, ast.ImportFrom):
            base = self._absolute(node)
            for alias in node.names:
                both = (base,) if alias.name == "*" else (f"{base}.{alias.name}", base)
                yield self._site(node, both, guarded, lazy)
        elif isinstance(node, ast.Call) and (name := self._by_import_module(node)):
            yield self._site(node, (name,), guarded, lazy, dynamic=True)
        elif isinstance(node, ast.Call) and (name := _first_argument(node, "__import__")):
            # torch.package follows these calls; in packaged code, __import__ is the archive's.
            yield self._site(node, (name,), guarded, lazy)
        elif isinstance(node, (ast.Try, ast.TryStar)) or _suppresses(node) or _is_decided(node):
            guarded = True
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            lazy = True
        for child in ast.iter_child_nodes(node):
            yield from self.walk(child, guarded, lazy)

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = self._package.split(".")
        parts = parts[: len(parts) - (node.level - 1)]
        return ".".join([*parts, node.module] if node.module else parts)

    def _by_import_module(self, node: ast.Call) -> str:
        """Return the absolute name that a call of ``import_module`` imports, or ""."""
        name = _first_argument(node, "import_module")
        if not name.startswith("."):
            return name
        try:
            return importlib.util.resolve_name(name, self._package_argument(node))
        except ImportError:  # beyond the top-level package, or from an unknown package
            return ""

    def _package_argument(self, node: ast.Call) -> str:
        """Return the package of a relative name if the call gives it in a known form, or ""."""
        given = [*node.args[1:2], *(each.value for each in node.keywords if each.arg == "package")]
        match given:
            case [ast.Constant(value=str(package))]:
                return package
            case [ast.Name(id="__package__")]:
                return self._package
            case [ast.Name(id="__name__")] if self._module == self._package:
                return self._package
        return ""

    def _site(
        self,
        node: ast.Import | ast.ImportFrom | ast.Call,
        modules: tuple[str, ...],
        guarded: bool,
        lazy: bool,
        dynamic: bool = False,
    ) -> ImportSite:
        text = self._lines[node.lineno - 1].strip() if node.lineno <= len(self._lines) else ""
        return ImportSite(modules, node.lineno, text, guarded, dynamic, lazy)


def _first_argument(node: ast.Call, function: str) -> str:
    """Return the literal first argument of a call of ``function``, or ""."""
    called = node.func.attr if isinstance(node.func, ast.Attribute) else None
    called = node.func.id if isinstance(node.func, ast.Name) else called
    if called != function or not node.args:
        return ""
    first = node.args[0]
    if isinstance(first, ast.Constant) and isinstance(first.value, str):
        return first.value
    return ""


def _suppresses(node: ast.AST) -> bool:
    """Return whether it is a ``with contextlib.suppress(…)``."""
    called = [each.context_expr for each in node.items] if isinstance(node, ast.With) else []
    return any("suppress" in ast.unparse(each) for each in called)


def _is_decided(node: ast.AST) -> bool:
    """Return whether it is an ``if`` of type checkers, the main program, the platform or Python's version."""
    if not isinstance(node, ast.If):
        return False
    names = {
        each.attr if isinstance(each, ast.Attribute) else each.id
        for each in ast.walk(node.test)
        if isinstance(each, (ast.Attribute, ast.Name))
    }
    return not names.isdisjoint(_DECIDED)
