"""Decides which objects outside of an archive its pickles may use.

A pickle names functions and calls them. These tables allow what pickles of models need; they omit whatever
could run code, open files or bypass the check. Names are checked before their module is imported, values
afterwards.

This limits pickles, not code: a module in the archive can import any module.
"""

from __future__ import annotations

import builtins
import functools
import re
import sys
import types
from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import Any, Final, get_origin

from interpool.native.upstream.cpython_private import RENAMED_GLOBALS, RENAMED_MODULES
from interpool.native.upstream.torch_private import (
    CALLED,
    IMPLICIT_EXTERNS,
    MANGLED,
    OWN_MODULES,
    PICKLED,
    PICKLED_TREES,
)

_ALL = frozenset({"*"})  # every public name
_CAPITALS = frozenset({"A*"})  # every name that starts with a capital letter

_BUILTINS = {
    "Ellipsis", "NotImplemented", "abs", "all", "any", "bool", "bytearray", "bytes", "callable", "chr",
    "complex", "dict", "divmod", "enumerate", "float", "frozenset", "getattr", "hash", "id", "int",
    "isinstance", "issubclass", "iter", "len", "list", "max", "min", "next", "object", "ord", "pow", "print",
    "range", "repr", "reversed", "round", "set", "slice", "sorted", "str", "sum", "tuple", "type", "zip",
    *(name for name in vars(builtins) if name.endswith(("Error", "Exception", "Warning", "Group"))),
    "KeyboardInterrupt", "StopIteration", "StopAsyncIteration", "GeneratorExit",
}  # fmt: skip

_OPERATORS = {
    "abs", "add", "and_", "contains", "eq", "floordiv", "ge", "getitem", "gt", "index", "inv", "invert",
    "is_", "is_not", "itemgetter", "le", "lshift", "lt", "matmul", "mod", "mul", "ne", "neg", "not_", "or_",
    "pos", "pow", "rshift", "sub", "truediv", "truth", "xor",
}  # fmt: skip

# Omitted on purpose: attrgetter and methodcaller (they bypass the check of getattr), reduce, map and call
# (they call other functions), and anything that reads or writes files, starts processes, loads code, or
# evaluates text (typing.get_type_hints, collections.namedtuple).
_STANDARD: Mapping[str, Collection[str]] = {
    "__builtin__": _BUILTINS,
    "_codecs": {"encode"},
    "_collections": {"OrderedDict", "defaultdict", "deque"},
    "_collections_abc": _CAPITALS,
    "_functools": {"partial"},
    "_io": {"BytesIO", "StringIO"},
    "_operator": _OPERATORS,
    "abc": _CAPITALS,
    "argparse": {"Namespace"},
    "array": {"_array_reconstructor", "array"},
    "builtins": _BUILTINS,
    "cmath": _ALL,
    "collections": {"A*", "defaultdict", "deque"},
    "collections.abc": _CAPITALS,
    "contextlib": {"nullcontext"},
    "copyreg": {"__newobj__", "__newobj_ex__", "_reconstructor"},
    "dataclasses": {"Field", "_FIELD_BASE", "_HAS_DEFAULT_FACTORY_CLASS", "_MISSING_TYPE"},
    "datetime": {"date", "datetime", "time", "timedelta", "timezone", "tzinfo"},
    "decimal": _CAPITALS,
    "enum": _CAPITALS,
    "fractions": {"Fraction"},
    "functools": {"partial"},
    "html": {"escape", "unescape"},
    "inspect": {"Parameter", "Signature", "_ParameterKind", "_empty"},
    "io": {"BytesIO", "StringIO"},
    "ipaddress": _CAPITALS,
    "itertools": {"chain"},
    "json": {"dumps", "loads"},
    "logging": {"getLogger"},
    "math": _ALL,
    "numbers": _CAPITALS,
    "operator": _OPERATORS,
    "pathlib": _CAPITALS,
    "pathlib._local": _CAPITALS,  # the module of paths in CPython 3.13
    "posixpath": {"basename", "dirname", "join", "normpath", "splitext"},
    "random": {"Random"},
    "re": {"RegexFlag", "_compile", "compile"},
    "statistics": {"NormalDist"},
    "string": {"Template", "capwords"},
    "struct": {"Struct"},
    "time": {"monotonic", "perf_counter", "process_time", "time"},
    "types": {"EllipsisType", "GenericAlias", "MappingProxyType", "NoneType", "SimpleNamespace", "UnionType"},
    "typing": _CAPITALS,
    "typing_extensions": _CAPITALS,
    "unicodedata": {"normalize"},
    "uuid": {"SafeUUID", "UUID"},
    "zoneinfo": {"ZoneInfo"},
}

_NUMPY: Mapping[str, Collection[str]] = {
    "numpy._core.multiarray": {"_reconstruct", "scalar"},
    "numpy._core.numeric": {"_frombuffer"},
    "numpy._core.records": {"recarray", "record"},
    "numpy.core.multiarray": {"_reconstruct", "scalar"},
    "numpy.core.numeric": {"_frombuffer"},
    "numpy.core.records": {"recarray", "record"},
    "numpy.dtypes": _CAPITALS,
    "numpy.ma": {"MaskedArray"},
    "numpy.ma.core": {"MaskedArray", "_mareconstruct"},
    "numpy.matrixlib.defmatrix": {"matrix"},
    "numpy.random._generator": {"Generator"},
    "numpy.random._mt19937": {"MT19937"},
    "numpy.random._pcg64": {"PCG64", "PCG64DXSM"},
    "numpy.random._philox": {"Philox"},
    "numpy.random._pickle": {"__bit_generator_ctor", "__generator_ctor", "__randomstate_ctor"},
    "numpy.random._sfc64": {"SFC64"},
    "numpy.random.bit_generator": {"SeedSequence", "__pyx_unpickle_SeedSequence"},
    "numpy.random.mtrand": {"RandomState"},
}
_NUMPY_FUNCTIONS = {
    "argmax", "argmin", "argsort", "asarray", "clip", "concatenate", "mean", "median", "prod", "stack", "std",
    "sum", "var", "where",
}  # fmt: skip

# Modules that would bypass the check. sympy evaluates text as numbers and pydantic evaluates text as types,
# and every server has both.
_NEVER: Final = frozenset(
    {
        *OWN_MODULES, "__main__", "_distutils_hack", "_pytest", "cffi", "cloudpickle", "dill", "distutils",
        "execnet", "fsspec", "functorch", "interpool", "invoke", "IPython", "jinja2", "joblib", "mako",
        "mpmath", "numexpr", "paramiko", "pexpect", "pip", "pkg_resources", "plumbum", "psutil", "pydantic",
        "pytest", "setuptools", "sh", "sympy", "torchgen", "triton", "ts", "wheel",
        "yaml",
    }
)  # fmt: skip


def current_name(module: str, name: str, protocol: int) -> tuple[str, str]:
    """Return the Python 3 name of a pickle's global.

    Args:
        module: the module that the pickle names.
        name: the name in it.
        protocol: the pickle's protocol; below 3, Python 2 names are translated.
    """
    if protocol >= 3:
        return module, name
    if (module, name) in RENAMED_GLOBALS:
        return RENAMED_GLOBALS[(module, name)]
    return RENAMED_MODULES.get(module, module), name


def is_external(module: str, externs: Collection[str]) -> bool:
    """Return whether torch.package imports a module from outside of the archive.

    Args:
        module: its dotted name.
        externs: the archive's extern modules.
    """
    parts = module.split(".")
    prefixes = [".".join(parts[:end]) for end in range(1, len(parts) + 1)]
    return not set(IMPLICIT_EXTERNS).isdisjoint(prefixes) or any(prefix in externs for prefix in prefixes)


def is_dunder(name: str) -> bool:
    """Return whether a name is Python's own, such as ``__builtins__``; pickles never need one."""
    return name.startswith("__") and name.endswith("__")


def allows_name(module: str, name: str) -> bool:
    """Return whether a pickle may name a member of an external module, so that it is imported.

    Args:
        module: dotted name of the module.
        name: of the member.
    """
    top = module.partition(".")[0]
    if top == "torch":
        return module == "torch" or _listed(PICKLED, module, name) or _within(module, PICKLED_TREES)
    if top == "numpy":
        return module == "numpy" or _listed(_NUMPY, module, name)
    if is_standard(top) or top in _STANDARD:
        return _listed(_STANDARD, module, name)
    return top not in _NEVER


def allows_value(module: str, name: str, value: Any) -> bool:
    """Return whether a pickle may use the value of a member of an external module.

    A function or class is judged by the module that defines it, not by one that reexports it.

    Args:
        module: dotted name of the module.
        name: of the member.
        value: the member.
    """
    if isinstance(value, (types.ModuleType, dict, list, set)):
        return False  # a pickle could change a container that other code uses
    home = getattr(value, "__module__", None)
    if not isinstance(home, str) or not isinstance(value, (type, *_FUNCTIONS)):
        home = module
    if home != module:
        true_name = getattr(value, "__name__", name)
        if not allows_name(home, str(true_name)) and not _is_alias(module, name, value):
            return False
    if isinstance(value, _FUNCTIONS) and _is_foreign(home):
        # A class may later call a function that the pickle only passes to it.
        names = {name, str(getattr(value, "__name__", name))}
        if any(_OPENS.search(each) for each in names):
            return False
    for top, check in _BY_VALUE.items():
        if top in (module, home):
            return check(name, value)
    return True


def unwrapped(function: Any, args: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """Return the function and arguments behind partials and generic aliases (``list[int]``).

    Unwrapping stops after ``_MOST_WRAPPED`` levels, because a partial may contain itself.

    Args:
        function: a callable.
        args: its positional arguments.
    """
    for _ in range(_MOST_WRAPPED):
        if isinstance(function, functools.partial):
            args = (*function.args, *args, *function.keywords.values())
            function = function.func
        elif get_origin(function) is not None:
            function = getattr(function, "__origin__", None)
        else:
            break
    return function, args


def allows_call(function: Any) -> bool:
    """Return whether a pickle may call a function that it may refer to.

    Models contain functions (``torch.relu``, ``operator.mul``) that pickles may only refer to: a call could
    exhaust memory or never end. Pickles may call classes, and functions written for pickles.
    """
    function, _ = unwrapped(function, ())
    if isinstance(function, functools.partial) or get_origin(function) is not None:
        return False  # it contains itself
    if not isinstance(function, _FUNCTIONS):
        return True
    home, name = getattr(function, "__module__", None), function.__name__
    if not isinstance(home, str):
        owner = getattr(function, "__objclass__", type(getattr(function, "__self__", None)))
        home = str(owner.__module__)
    if _is_archived(home) or (home, name) in _CALLED:
        return True
    if _is_foreign(home):
        return _MAKES.search(name) is not None
    # Many C functions of torch do not check their arguments; methods can save files.
    unsafe = home.partition(".")[0] == "torch" and not isinstance(function, types.FunctionType)
    return name.startswith("_") and not unsafe


_MOST_WRAPPED: Final = 10  # levels of nested partials and aliases

# Names of installed packages' functions and methods that were written for pickles.
_MAKES = re.compile(r"^_|^newObj$|unpickle|reconstruct|rebuild")
# Names of those that read or write files, or evaluate text.
_OPENS = re.compile(
    r"(?:^|_)(?:compile|download|dump|dumps|eval|exec|execute|import|lambdify|load|loads|open|parse_expr|popen|"
    r"query|read|run|save|spawn|sympify|system|write)(?:_|$)"
)


_CALLED = {
    ("_codecs", "encode"), ("_operator", "getitem"), ("builtins", "iter"), ("builtins", "reversed"),
    ("copyreg", "__newobj__"), ("logging", "getLogger"), ("numpy._core.multiarray", "scalar"),
    ("numpy.core.multiarray", "scalar"), ("re", "compile"),
    *CALLED,
}  # fmt: skip


def is_standard(top: str) -> bool:
    """Return whether a top-level module is in the standard library, of this Python or of Python 2."""
    return top in sys.stdlib_module_names or top in sys.builtin_module_names or top == "__builtin__"


def _is_foreign(home: str) -> bool:
    """Return whether a module is of an installed package other than torch and numpy."""
    top = home.partition(".")[0]
    return top not in ("torch", "numpy") and not is_standard(top) and not _is_archived(home)


def _is_archived(home: str) -> bool:
    """Return whether a module is an archive's, whose name torch.package has mangled."""
    return home.startswith(MANGLED)


_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType, types.MethodType)


def _is_alias(module: str, name: str, value: Any) -> bool:
    """Return whether a listed name of the standard library is defined in a private module."""
    return _listed(_STANDARD, module, name) and isinstance(value, (type, *_FUNCTIONS))


def _torch_value(name: str, value: Any) -> bool:
    import torch

    from interpool.native.upstream.torch_private import VariableFunctions

    if isinstance(value, _torch_constants()):
        return True
    if isinstance(value, type):
        known = (torch.Tensor, torch.UntypedStorage, torch.storage.TypedStorage)
        own = value.__module__ == "torch"
        return name in _TORCH_CLASSES or issubclass(value, known) or not own
    if isinstance(value, types.FunctionType):
        return value.__module__ != "torch"
    return name != "from_file" and hasattr(VariableFunctions, name)


_TORCH_CLASSES = {"Generator", "Size", "device", "dtype", "finfo", "iinfo", "layout", "memory_format"}


@cache
def _torch_constants() -> tuple[type, ...]:
    import torch

    return (torch.dtype, torch.layout, torch.memory_format, torch.qscheme)


def _numpy_value(name: str, value: Any) -> bool:
    import numpy as np

    if isinstance(value, type):
        return issubclass(value, (np.generic, np.ndarray, np.dtype, np.ufunc)) and value is not np.memmap
    return isinstance(value, np.ufunc) or name in _NUMPY_FUNCTIONS


_BY_VALUE: Mapping[str, Callable[[str, Any], bool]] = {"torch": _torch_value, "numpy": _numpy_value}


def _listed(table: Mapping[str, Collection[str]], module: str, name: str) -> bool:
    names = table.get(module, ())
    if name in names:
        return True
    if "A*" in names:
        return name[:1].isupper() and name != "ForwardRef"  # ForwardRef evaluates text
    return "*" in names and not name.startswith("_")


def _within(module: str, trees: Collection[str]) -> bool:
    return any(module == tree or module.startswith(f"{tree}.") for tree in trees)
