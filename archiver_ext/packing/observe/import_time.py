"""Reads in a module's source which other modules it uses during its import, beyond their names.

A mock can be imported, passed on and stored. It cannot be called, be a base class or a key, or give
attributes. If code at the top level does that, the module cannot be mocked. That holds even if none of its
Python code runs (an enum's member, a constant, a base class, a C function).
"""

from __future__ import annotations

import ast
import contextlib
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from interpool.archiver_ext.source_lines import lines_of, source_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from interpool.archiver_ext.packing.decide.working_trees import WorkingTrees

# Generic aliases of these accept any argument; those of typing hash it.
_PLAIN_GENERICS = {"dict", "frozenset", "list", "set", "tuple", "type"}


def used_by_loaded(trees: WorkingTrees) -> dict[str, str]:
    """Return the modules that imported modules of the user use so, with the line."""
    found: dict[str, str] = {}
    for _, module in sorted(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file.endswith(".py") and trees.owns(Path(file)):
            with contextlib.suppress(OSError):  # such as a module in a zip file
                text = Path(file).read_bytes()
                found |= used_at_import(text, trees.shown(Path(file))) | found
    return found


def used_at_import(source: bytes | str, shown: str) -> dict[str, str]:
    """Return the top-level names of modules that a source needs unmocked, with the line.

    Args:
        source: of the module. A source with a syntax error uses none.
        shown: its file's name, for the line.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return {}
    lines = lines_of(source.decode("utf-8", "replace") if isinstance(source, bytes) else source)
    found: dict[str, str] = {}
    for top, line in _Reader().uses(tree.body):
        if top not in sys.stdlib_module_names:  # never mocked
            found.setdefault(top, source_line(shown, line, lines[line - 1]))
    return found


class _Reader:
    """Tracks names through the top level of one module.

    Each name maps to the dotted name of a module or of a module's member.
    """

    def __init__(self) -> None:
        self._bound: dict[str, str] = {}
        self._modules: set[str] = set()
        self._lazy_annotations = False

    def uses(self, body: list[ast.stmt]) -> Iterator[tuple[str, int]]:
        """Yield top-level names of modules that statements use, with the line."""
        for statement in body:
            yield from self._statement(statement)

    def _statement(self, node: ast.stmt) -> Iterator[tuple[str, int]]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                self._modules |= {alias.name, alias.name.partition(".")[0]}
                self._bound[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom):
            self._lazy_annotations |= node.module == "__future__" and any(
                alias.name == "annotations" for alias in node.names
            )
            if not node.level and node.module:
                self._modules.add(node.module)
                self._bound |= {
                    alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names
                }
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from self._definition(node)
        elif isinstance(node, ast.ClassDef):
            for part in (*node.bases, *(keyword.value for keyword in node.keywords), *node.decorator_list):
                yield from self._needed(part)
            outside = dict(self._bound)
            yield from self.uses(node.body)
            self._bound = outside
        elif isinstance(node, ast.If):
            if not _is_elsewhere(node.test):
                yield from self._needed(node.test)
                yield from self.uses(node.body)
            yield from self.uses(node.orelse)
        else:
            yield from self._other(node)

    def _definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[str, int]]:
        arguments = node.args
        for part in node.decorator_list:
            yield from self._needed(part)
        for default in (*arguments.defaults, *filter(None, arguments.kw_defaults)):
            yield from self._expression(default)
        if self._lazy_annotations:
            return
        every = [
            *arguments.posonlyargs,
            *arguments.args,
            *arguments.kwonlyargs,
            arguments.vararg,
            arguments.kwarg,
        ]
        for annotation in (*(each.annotation for each in every if each is not None), node.returns):
            if annotation is not None:
                yield from self._expression(annotation)

    def _other(self, node: ast.stmt) -> Iterator[tuple[str, int]]:
        """Handle a statement with expressions, and possibly other statements."""
        if isinstance(node, ast.For):
            yield from self._needed(node.iter)
        if isinstance(node, ast.With):
            for item in node.items:
                yield from self._needed(item.context_expr)
        if isinstance(node, ast.Assign) and (name := self._named(node.value)):
            self._bound |= {each.id: name for each in node.targets if isinstance(each, ast.Name)}
        for _, value in ast.iter_fields(node):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.stmt):
                    yield from self._statement(child)
                elif isinstance(child, ast.ExceptHandler):
                    yield from self.uses(child.body)  # its type is evaluated only if an exception is raised
                elif isinstance(child, ast.expr) and not self._is_lazy_annotation(node, child):
                    yield from self._expression(child)

    def _is_lazy_annotation(self, node: ast.stmt, child: ast.expr) -> bool:
        return self._lazy_annotations and isinstance(node, ast.AnnAssign) and child is node.annotation

    def _expression(self, node: ast.expr) -> Iterator[tuple[str, int]]:
        """Yield uses in an expression whose value is only passed on."""
        if isinstance(node, ast.Lambda):
            return
        if isinstance(node, ast.Attribute):
            # An attribute of a module is a mock; an attribute of a mock is an error.
            yield from (
                self._needed(node.value) if self._is_object(node.value) else self._expression(node.value)
            )
            return
        for part in _operands(node):
            yield from self._object(part)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                yield from self._expression(child)
            elif isinstance(child, ast.comprehension):
                for part in (child.iter, *child.ifs):
                    yield from self._needed(part)
            elif isinstance(child, ast.keyword):
                yield from self._expression(child.value)

    def _needed(self, node: ast.expr) -> Iterator[tuple[str, int]]:
        """Yield uses in an expression whose value must not be a mock."""
        yield from self._object(node)
        if not self._is_object(node):
            yield from self._expression(node)

    def _object(self, node: ast.expr) -> Iterator[tuple[str, int]]:
        if self._is_object(node):
            yield self._named(node).partition(".")[0], node.lineno

    def _is_object(self, node: ast.expr) -> bool:
        """Return whether the name would mean a mock of an object, not of a module."""
        name = self._named(node)
        is_module = name in self._modules or isinstance(sys.modules.get(name), ModuleType)
        return bool(name) and not is_module

    def _named(self, node: ast.expr) -> str:
        """Return the dotted name of an imported object or its attribute; "" for other expressions."""
        if isinstance(node, ast.Name):
            return self._bound.get(node.id, "")
        if isinstance(node, ast.Attribute) and (owner := self._named(node.value)):
            return f"{owner}.{node.attr}"
        return ""


def _operands(node: ast.expr) -> list[ast.expr]:
    """Return the parts of an expression that are operated on."""
    if isinstance(node, ast.Call):
        return [node.func]
    if isinstance(node, ast.Subscript):
        plain = isinstance(node.value, ast.Name) and node.value.id in _PLAIN_GENERICS
        inside = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return [node.value, *([] if plain else inside)]
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.Compare):
        is_identity = all(isinstance(each, (ast.Is, ast.IsNot)) for each in node.ops)
        return [] if is_identity else [node.left, *node.comparators]
    if isinstance(node, ast.BoolOp):
        return node.values
    if isinstance(node, ast.UnaryOp):
        return [node.operand]
    if isinstance(node, ast.IfExp):
        return [node.test]
    if isinstance(node, ast.Dict):
        return [key for key in node.keys if key is not None]
    if isinstance(node, ast.Set):
        return node.elts
    if isinstance(node, ast.Starred):
        return [node.value]
    return []


def _is_elsewhere(test: ast.expr) -> bool:
    """Return whether a branch is for type checkers or the main program, and does not run at import."""
    names = {
        each.attr if isinstance(each, ast.Attribute) else each.id
        for each in ast.walk(test)
        if isinstance(each, (ast.Attribute, ast.Name))
    }
    return not names.isdisjoint({"TYPE_CHECKING", "__name__"})
