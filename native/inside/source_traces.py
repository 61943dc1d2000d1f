"""Reads in a model's sources which values they set in modules that are not the model's.

Examples: ``ImageFile.LOAD_TRUNCATED_IMAGES = True``, ``nltk.data.path.append(folder)``. Such values refer to
no object of the model, and libraries change their own values all the time. So this module searches the
sources for assignments to imported objects, for calls that change an imported container, and for calls of
known process-wide setters. Code that never runs counts, too: in doubt, the model gets its own interpreter.

Values that are isolated per model do not count: ``os.environ``, ``sys.path``, torch's settings and the like.
``sys.modules`` is not isolated for models of hermetic archives. They may change their own modules there.
"""

from __future__ import annotations

import abc
import ast
import inspect
import linecache
import sys
from collections import deque
from collections.abc import Iterator, Mapping, MutableMapping, MutableSequence, MutableSet
from types import ModuleType
from typing import NamedTuple, TypeGuard

from interpool.native.upstream.torch_private import MANGLED, plain_name

_CHANGING = frozenset(
    {"append", "appendleft", "extend", "insert", "remove", "pop", "popitem", "clear", "update", "setdefault"}
    | {"add", "discard", "sort", "reverse"}
)
_CONTAINERS = (list, dict, set, deque, MutableMapping, MutableSequence, MutableSet)
# Isolated per model: see handler/backend/process_view.py, own_changes.py, and interpose/settings.cc.
_OWN = (
    "os.environ",
    *(
        f"sys.{name}"
        for name in ("argv", "path", "modules", "stdin", "stdout", "stderr", "dont_write_bytecode")
    ),
    "tempfile.tempdir",
    "warnings.filters",
    *(
        f"torch.backends.{name}"
        for name in ("cuda", "cudnn", "fp32_precision", "mha", "miopen", "mkldnn", "opt_einsum", "quantized")
    ),
)
# Setters of values that answers depend on.
_SETTERS = frozenset(
    {
        "calendar.setfirstweekday",
        "csv.field_size_limit",
        "csv.register_dialect",
        "cv2.setRNGSeed",
        "gettext.bindtextdomain",
        "gettext.install",
        "gettext.textdomain",
        "jieba.add_word",
        "jieba.load_userdict",
        "jieba.set_dictionary",
        "logging.addLevelName",
        "matplotlib.colormaps.register",
        "matplotlib.pyplot.rc",
        "matplotlib.pyplot.rcdefaults",
        "matplotlib.pyplot.style.use",
        "matplotlib.rc",
        "matplotlib.rcdefaults",
        "matplotlib.style.use",
        "mimetypes.add_type",
        "numpy.random.set_bit_generator",
        "pandas.reset_option",
        "pandas.set_option",
        "pillow_heif.register_avif_opener",
        "pillow_heif.register_heif_opener",
        "seaborn.set",
        "seaborn.set_context",
        "seaborn.set_palette",
        "seaborn.set_style",
        "seaborn.set_theme",
        "sklearn.set_config",
        "spacy.tokens.Doc.set_extension",
        "spacy.tokens.Span.set_extension",
        "spacy.tokens.Token.set_extension",
        "sys.addaudithook",
        "torch.__future__.set_overwrite_module_params_on_conversion",
        "torch.__future__.set_swap_module_params_on_conversion",
        "torch.compiler.set_stance",
        "torch.hub.set_dir",
        "torch.multiprocessing.set_sharing_strategy",
        "torch.set_printoptions",
        "xml.etree.ElementTree.register_namespace",
        "zoneinfo.reset_tzpath",
    }
)
# They create a figure, on which the next model draws unless it is closed.
_DRAWING = frozenset(
    f"matplotlib.pyplot.{name}"
    for name in (
        "axes",
        "bar",
        "figure",
        "gca",
        "gcf",
        "hist",
        "imshow",
        "plot",
        "scatter",
        "subplot",
        "subplots",
    )
)
_CLOSING = "matplotlib.pyplot.close"


class _Change(NamedTuple):
    name: str
    line: int


def changes_of(modules: Mapping[str, ModuleType]) -> Iterator[tuple[ModuleType, str]]:
    """Yield the changes that modules' sources make to other modules.

    The module, and the change with its line.

    Args:
        modules: models' modules, by name. Those of archives have mangled names.
    """
    own = {plain_name(name).partition(".")[0] for name in modules}  # as the sources write it
    for name, module in modules.items():
        file = str(vars(module).get("__file__") or name)  # vars() runs no code of an unusual module
        try:
            tree = ast.parse("".join(linecache.getlines(file, vars(module))))
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            continue  # no readable source
        for change in _Reader(tree, own, is_archived=name.startswith(MANGLED)).changes():
            yield module, f"{change.name} ({file}:{change.line})"


class _Reader:
    """Reads the source of one module.

    Args:
        tree: its syntax tree.
        own: the top-level names of the model's own modules.
        is_archived: whether the module is in a hermetic archive. Such models share ``sys.modules``.
    """

    def __init__(self, tree: ast.Module, own: set[str], *, is_archived: bool) -> None:
        main = {
            inner
            for node in tree.body
            if isinstance(node, ast.If) and "__main__" in ast.dump(node.test)
            for inner in ast.walk(node)
        }
        self._own = own
        self._is_archived = is_archived
        self._nodes = [node for node in ast.walk(tree) if node not in main]
        self._imported = dict(self._imports(own))
        self._hidden = set(_hidden_names(tree))
        stands_in = {  # for a library that is missing
            target
            for node in self._nodes
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and not node.value.value
            for target in node.targets
        }
        names = [node for node in self._nodes if isinstance(node, ast.Name)]
        for name in names:  # one that is bound again has no known meaning
            if isinstance(name.ctx, ast.Store) and name not in self._hidden and name not in stands_in:
                self._imported.pop(name.id, None)

    def _imports(self, own: set[str]) -> Iterator[tuple[str, str]]:
        for node in self._nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    top = alias.name.partition(".")[0]
                    if top not in own:
                        yield alias.asname or top, alias.name if alias.asname else top
            elif isinstance(node, ast.ImportFrom) and not node.level:
                module = node.module or ""
                for alias in node.names if module.partition(".")[0] not in own else ():
                    yield alias.asname or alias.name, f"{module}.{alias.name}"

    def changes(self) -> Iterator[_Change]:
        for node in self._nodes:
            for place in _places(node):
                name = self._name(place)
                if name == "sys.modules":
                    if self._is_of_others(place):
                        yield _Change(ast.unparse(place), place.lineno)
                elif name and not any(name == own or name.startswith(f"{own}.") for own in _OWN):
                    yield _Change(name, place.lineno)
        yield from self._changes_by_calls()

    def _changes_by_calls(self) -> Iterator[_Change]:
        calls = [(self._called(node.func), node) for node in self._nodes if isinstance(node, ast.Call)]
        closes = any(name == _CLOSING for name, _ in calls)
        for name, call in calls:
            if name in _SETTERS or (name in _DRAWING and not closes) or self._registers(name, call):
                yield _Change(f"{name}()", call.lineno)

    def _registers(self, name: str, call: ast.Call) -> bool:
        """Return whether the call registers a library's class with a library's abstract class."""
        owner, _, method = name.rpartition(".")
        return (
            method == "register"
            and isinstance(_found(owner), abc.ABCMeta)
            and any(isinstance(one, type) for one in map(_found, map(self._called, call.args)))
        )

    def _is_of_others(self, place: ast.expr) -> bool:
        """Return whether a changed part of ``sys.modules`` is not the model's own.

        Every model but an archived one may change all that is not in another's package.
        """
        if self._is_archived:
            return not (isinstance(place, ast.Subscript) and "__name__" in ast.unparse(place.slice))
        if not isinstance(place, ast.Subscript) or not isinstance(place.slice, ast.Constant):
            return False
        name = str(place.slice.value)
        top = name.partition(".")[0]
        return name != top and top in sys.modules and top not in self._own

    def _is_imported(self, name: ast.expr) -> TypeGuard[ast.Name]:
        return isinstance(name, ast.Name) and name.id in self._imported and name not in self._hidden

    def _called(self, function: ast.expr) -> str:
        """Return the full name of a called function, such as ``pandas.set_option``.

        "" if it is the model's own.
        """
        parts: list[str] = []
        while isinstance(function, ast.Attribute):
            parts.append(function.attr)
            function = function.value
        if not self._is_imported(function):
            return ""
        return ".".join([self._imported[function.id], *reversed(parts)])

    def _name(self, place: ast.expr) -> str:
        """Return the full name of a changed value, such as ``nltk.data.path``.

        "" if it is the model's own.
        """
        whole = isinstance(place, ast.Attribute) and isinstance(place.ctx, ast.Store | ast.Del)
        parts: list[str] = []
        while isinstance(place, ast.Attribute | ast.Subscript):
            if isinstance(place, ast.Attribute):
                parts.append(place.attr)
            else:
                parts.clear()  # the statement changes the container
                whole = False
            place = place.value
        if not self._is_imported(place):
            return ""
        name = ".".join([self._imported[place.id], *reversed(parts)])
        return name if whole or isinstance(_found(name), _CONTAINERS) else ""


def _hidden_names(tree: ast.Module) -> Iterator[ast.Name]:
    """Yield the names that stand in a function which binds them itself, by an argument or otherwise."""
    waiting: list[tuple[ast.AST, frozenset[str]]] = [(tree, frozenset())]
    while waiting:
        node, hidden = waiting.pop()
        if isinstance(node, ast.Name) and node.id in hidden:
            yield node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            hidden |= set(_bound_in(node))
        waiting += [(child, hidden) for child in ast.iter_child_nodes(node)]


def _bound_in(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> Iterator[str]:
    """Yield the names that a function binds, without those of functions in it."""
    waiting: list[ast.AST] = [function]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        inner = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef)
        if node is function or not inner:
            waiting += ast.iter_child_nodes(node)


def _places(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the expressions that a statement or call changes."""
    if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
        yield node
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGING:
        yield node.func.value
    elif (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("setattr", "delattr")
        and len(node.args) > 1
    ):
        given = node.args[1]
        name = str(given.value) if isinstance(given, ast.Constant) else ast.unparse(given)
        yield ast.copy_location(ast.Attribute(node.args[0], name, ast.Store()), node)


def _found(name: str) -> object:
    """Return the object with this full name in the imported modules; None if there is none."""
    module = name
    attributes: list[str] = []
    while module not in sys.modules:
        module, _, last = module.rpartition(".")
        if not module:
            return None
        attributes.insert(0, last)
    value: object = sys.modules[module]
    for attribute in attributes:
        value = inspect.getattr_static(value, attribute, None)
    return value
