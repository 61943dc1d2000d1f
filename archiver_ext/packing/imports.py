"""Import statements of a source file, with their lines.

torch.package finds the same imports but keeps no lines, so that its messages
cannot say which line of the user's brought a module in.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class ImportSite:
    """One imported name.

    Attributes:
        modules: the modules that it may mean, most specific first: ``from a import b``
            may mean ``a.b`` or ``a``.
        line: line number, from 1.
        text: the line itself, stripped.
        guarded: inside ``try`` or ``if TYPE_CHECKING``, so that it may fail.
        dynamic: an ``importlib.import_module`` call with a literal name.
        lazy: in a function's body, so that importing the module does not run it.
    """

    modules: tuple[str, ...]
    line: int
    text: str
    guarded: bool
    dynamic: bool
    lazy: bool


def find_imports(source: str, module: str, is_package: bool) -> list[ImportSite]:
    """All imports of ``module``'s source, in order. Source that does not parse has none."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return []
    package = module if is_package else module.rpartition(".")[0]
    lines = source.splitlines()
    return list(_Walker(package, lines).walk(tree, guarded=False, lazy=False))


class _Walker:
    def __init__(self, package: str, lines: list[str]) -> None:
        self._package = package
        self._lines = lines

    def walk(self, node: ast.AST, guarded: bool, lazy: bool) -> Iterator[ImportSite]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield self._site(node, (alias.name,), guarded, lazy)
        elif isinstance(node, ast.ImportFrom):
            base = self._absolute(node)
            for alias in node.names:
                both = (base,) if alias.name == "*" else (f"{base}.{alias.name}", base)
                yield self._site(node, both, guarded, lazy)
        elif isinstance(node, ast.Call) and (name := _first_argument(node, "import_module")):
            yield self._site(node, (name,), guarded, lazy, dynamic=True)
        elif isinstance(node, ast.Call) and (name := _first_argument(node, "__import__")):
            # torch.package follows these, and the packaged code's __import__ is the archive's.
            yield self._site(node, (name,), guarded, lazy)
        elif isinstance(node, ast.Try) or _is_type_checking(node):
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
    """The literal that a call of ``function`` starts with, or ""."""
    called = node.func.attr if isinstance(node.func, ast.Attribute) else None
    called = node.func.id if isinstance(node.func, ast.Name) else called
    if called != function or not node.args:
        return ""
    first = node.args[0]
    if isinstance(first, ast.Constant) and isinstance(first.value, str):
        return first.value
    return ""


def _is_type_checking(node: ast.AST) -> bool:
    if not isinstance(node, ast.If):
        return False
    test = node.test
    name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", "")
    return name == "TYPE_CHECKING"
