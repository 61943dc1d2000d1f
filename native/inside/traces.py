"""Finds objects that a model has left in the state that all models of its interpreter share.

Examples: a function among torch's global hooks, a class in a registry, a name in ``builtins``. Other models
would call or see them. An object of a model is a *trace* if references lead to it from the environment and
not through a model. A function of the environment whose code or defaults were replaced is a trace, too.
Entries that the environment keeps per model are none: functools' caches, weak references, dicts by a model's
class. Plain values have no owner, so ``source_traces`` reads what the model's sources set.

``native/cpp/slot/reach.cc`` follows the references. It runs after a load and after the first call, before
another model runs, and then less and less often. With large libraries it takes a tenth of a second.
"""

from __future__ import annotations

import codecs
import encodings
import functools
import gc
import sys
from types import FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple
from weakref import WeakSet

import _interpool
from interpool.native.inside import lean_imports, module_scope, owners, source_traces
from interpool.native.upstream.cpython_private import attributes_of, kept_for_callers
from interpool.native.upstream.torch_private import MANGLED, plain_name

_OURS = "interpool"
# operators.py unregisters what models register with torch. Compiled and traced code, and variants of generic
# classes, are found by the model's own code or class.
_KEEPERS = (
    _OURS,
    "torch.library",
    "torch._library",
    "torch._ops",
    "torch._dynamo",
    "torch._functorch",
    "torch._inductor",
    "torch.fx._symbolic_trace",
    "pydantic._internal",
)
_MOST = 20


_read: WeakSet[ModuleType] = WeakSet()  # modules of models whose sources were read


class Trace(NamedTuple):
    """One object or change that a model has left.

    Attributes:
        text: describes it for people.
        path: of the model's directory or archive; "" if unknown.
    """

    text: str
    path: str = ""


def all_traces() -> list[Trace]:
    """Return the models' traces, each one only once. Call while no scope is entered."""
    return [*_changed_by_sources(), *reachable()]


def _changed_by_sources() -> list[Trace]:
    modules = {name: one for name, one in module_scope.all_modules() if one not in _read}
    modules |= {
        name: one
        for name, one in sys.modules.copy().items()
        if name.startswith(MANGLED) and issubclass(type(one), ModuleType) and one not in _read
    }
    _read.update(modules.values())
    return [
        Trace(plain_name(text), owners.path_of(vars(module)))
        for module, text in source_traces.changes_of(modules)
    ]


def reachable() -> list[Trace]:
    """Return objects of models that are reachable from the environment. Call while no scope is entered."""
    spaces = {
        name: attributes_of(module)
        for name, module in sys.modules.copy().items()
        if issubclass(type(module), ModuleType) and _is_shared(name, module)
    }
    spaces["_codecs"] = spaces.get("_codecs", {}) | _of_c_code()
    globals_ = [vars(module) for _, module in module_scope.all_modules()]
    names = sorted(module_scope.ever_owned() - spaces.keys())
    keepers = [*_KEEPERS, *kept_for_callers(), *_membership_sets(spaces)]
    found = _interpool.find_models_objects(list(spaces.values()), globals_, names, keepers, MANGLED, _MOST)
    places = list(spaces)
    return [
        Trace(f"{plain_name(f'{places[place]}.{name}')} ({described(one)})", _path_of(one))
        for place, name, one in found
    ]


def _membership_sets(spaces: dict[str, dict[str, Any]]) -> list[object]:
    """Return sets of classes that libraries use only for membership tests."""
    return [spaces.get("transformers.utils.generic", {}).get("_registered_model_output_types")]


def _path_of(value: Any) -> str:
    """Return ``Trace.path`` of a value."""
    # type() runs no code of an instance, unlike isinstance().
    if type(value) is MethodType:
        value = value.__func__
    if type(value) is FunctionType:
        return owners.path_of(value.__globals__)
    if issubclass(type(value), ModuleType):
        return owners.path_of(vars(value))
    one: Any = value if issubclass(type(value), type) else type(value)
    if one.__module__.startswith(MANGLED) and one.__module__ in sys.modules:
        return owners.path_of(vars(sys.modules[one.__module__]))
    for member in vars(one).values():
        if isinstance(member, FunctionType) and member.__module__ == one.__module__:
            return owners.path_of(member.__globals__)
    # Several models may have a module of this name.
    named = [vars(module) for name, module in module_scope.all_modules() if name == one.__module__]
    having = [globals_ for globals_ in named if globals_.get(one.__name__) is one] or named
    return owners.path_of(having[0]) if len(having) == 1 else ""


@functools.cache
def _of_c_code() -> dict[str, Any]:
    """Return lists that only C code refers to: search functions and error handlers of codecs."""
    referrers = gc.get_referrers(encodings.search_function, codecs.strict_errors)
    searches = [
        one
        for one in referrers
        if type(one) is list and any(each is encodings.search_function for each in one)
    ]
    errors = [one for one in referrers if type(one) is dict and one.get("strict") is codecs.strict_errors]
    return {"register": searches, "register_error": errors}


def described(value: Any) -> str:
    """Describe an object of a model, with its place in the source if known."""
    if type(value) is MethodType:
        value = value.__func__
    if type(value) is FunctionType:
        code = value.__code__
        return plain_name(
            f"{value.__module__}.{value.__qualname__}, {code.co_filename}:{code.co_firstlineno}"
        )
    if issubclass(type(value), ModuleType):
        return plain_name(value.__name__)
    one: Any = value if issubclass(type(value), type) else type(value)
    return plain_name(f"{one.__module__}.{one.__qualname__}")


def _is_shared(name: str, module: ModuleType) -> bool:
    return (
        not any(f"{name}.".startswith(f"{keeper}.") for keeper in _KEEPERS)
        and name != f"_{_OURS}"
        and not name.startswith(MANGLED)
        and not lean_imports.is_deferred(module)
    )
