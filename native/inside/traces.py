"""What a model has left in what all models of its interpreter share: found by following references.

In a process of its own a model may put a function of its own among torch's global hooks, a class into a
registry, a name into ``builtins``. In here its neighbours would call it. So whatever is a model's, and can
be reached from the environment without going through a model, is a trace; and so is a function of the
environment's whose code or defaults were exchanged. What the environment keeps by a model's key (functools'
caches, weak references, what a dict has by a model's class) is none. Of values nobody can tell whose they
are: the model's sources say what it sets (``source_traces``).

``native/cpp/slot/reach.cc`` follows the references. That costs some tenths of a second where large libraries
are loaded, so it is done after a load, after the first calls, and then seldom.
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
from interpool.native.upstream.cpython_private import kept_for_callers
from interpool.native.upstream.torch_private import MANGLED, plain_name

_OURS = "interpool"
# What models register with torch is taken back with them, and never a neighbour's (operators.py). What is
# compiled, traced or made of a generic class is found by the model's own code or class.
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


_read: WeakSet[ModuleType] = WeakSet()  # models' modules whose sources were looked at


class Trace(NamedTuple):
    """One thing that a model has left.

    Attributes:
        text: for people.
        path: of the model's directory or archive; "" if that cannot be known.
    """

    text: str
    path: str = ""


def all_traces() -> list[Trace]:
    """What models have left, each told once. While no scope is entered."""
    return [*_changed_by_sources(), *reachable()]


def _changed_by_sources() -> list[Trace]:
    modules = {name: one for name, one in module_scope.all_modules() if one not in _read}
    modules |= {
        name: one
        for name, one in sys.modules.copy().items()
        if name.startswith(MANGLED) and isinstance(one, ModuleType) and one not in _read
    }
    _read.update(modules.values())
    return [
        Trace(plain_name(text), owners.path_of(vars(module)))
        for module, text in source_traces.changes_of(modules)
    ]


def reachable() -> list[Trace]:
    """What is a model's and can be reached from the environment. While no scope is entered."""
    spaces = {
        name: object.__getattribute__(module, "__dict__")
        for name, module in sys.modules.copy().items()
        if isinstance(module, ModuleType) and _is_shared(name, module)
    }
    spaces["_codecs"] = spaces.get("_codecs", {}) | _of_c_code()
    globals_ = [vars(module) for _, module in module_scope.all_modules()]
    names = sorted(module_scope.ever_owned() - spaces.keys())
    keepers = [*_KEEPERS, *kept_for_callers(), *_asked_for_membership(spaces)]
    found = _interpool.find_models_objects(list(spaces.values()), globals_, names, keepers, MANGLED, _MOST)
    places = list(spaces)
    return [
        Trace(f"{plain_name(f'{places[place]}.{name}')} ({described(one)})", _path_of(one))
        for place, name, one in found
    ]


def _asked_for_membership(spaces: dict[str, dict[str, Any]]) -> list[object]:
    """Sets of classes that their libraries ask only whether one is among them."""
    return [spaces.get("transformers.utils.generic", {}).get("_registered_model_output_types")]


def _path_of(value: object) -> str:
    """See Trace."""
    if isinstance(value, MethodType):
        value = value.__func__
    if isinstance(value, FunctionType):
        return owners.path_of(value.__globals__)
    if isinstance(value, ModuleType):
        return owners.path_of(vars(value))
    one = value if isinstance(value, type) else type(value)
    if one.__module__.startswith(MANGLED) and one.__module__ in sys.modules:
        return owners.path_of(vars(sys.modules[one.__module__]))
    for member in vars(one).values():
        if isinstance(member, FunctionType) and member.__module__ == one.__module__:
            return owners.path_of(member.__globals__)
    # Models may have modules of one name.
    named = [vars(module) for name, module in module_scope.all_modules() if name == one.__module__]
    having = [globals_ for globals_ in named if globals_.get(one.__name__) is one] or named
    return owners.path_of(having[0]) if len(having) == 1 else ""


@functools.cache
def _of_c_code() -> dict[str, Any]:
    """What only C code refers to: the functions that look for codecs, and those that deal with errors."""
    searches = [one for one in gc.get_referrers(encodings.search_function) if type(one) is list]
    errors = [
        one
        for one in gc.get_referrers(codecs.strict_errors)
        if type(one) is dict and one.get("strict") is codecs.strict_errors
    ]
    return {"register": searches, "register_error": errors}


def described(value: object) -> str:
    """An object of a model's, with the place in its source if that is known."""
    if isinstance(value, MethodType):
        value = value.__func__
    if isinstance(value, FunctionType):
        code = value.__code__
        return plain_name(
            f"{value.__module__}.{value.__qualname__}, {code.co_filename}:{code.co_firstlineno}"
        )
    if isinstance(value, ModuleType):
        return plain_name(value.__name__)
    one: Any = value if isinstance(value, type) else type(value)
    return plain_name(f"{one.__module__}.{one.__qualname__}")


def _is_shared(name: str, module: ModuleType) -> bool:
    return (
        not any(f"{name}.".startswith(f"{keeper}.") for keeper in _KEEPERS)
        and name != f"_{_OURS}"
        and not name.startswith(MANGLED)
        and not lean_imports.is_late(module)
    )
