"""Unregisters a model's ``torch.library`` operators with the model, and refuses names that two models use.

torch keeps each ``Library`` for the life of the Python process. A private interpreter loads models again and
serves several, so each ``Library`` is recorded with its model until that is closed (``release``). A
registration that would replace another model's operator is refused before it changes anything
(``refusals.conflicting``): otherwise one model would run the other's kernel.

A ``Library`` belongs to the model whose code creates it, directly or by torch's functions. Libraries that
modules of the environment create belong to the environment, even if a model calls these modules.
"""

from __future__ import annotations

import functools
import re
import sys
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from interpool.native.inside.owners import Owner, owner_of
from interpool.native.inside.refusals import conflicting
from interpool.native.upstream.torch_private import forget_libraries, operators_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.library import Library


_owners: WeakKeyDictionary[Library, Owner] = WeakKeyDictionary()

# Modules through which a model's code may create a library.
_INTERMEDIARIES = re.compile(
    r"(torch\._?library|torch\._custom_ops?|functools|contextlib|typing_extensions)(\..*)?"
)


def install() -> None:
    """Override what creates, fills and destroys libraries. Call once per interpreter, before any model."""
    from torch.library import Library

    def new(cls: type[Library], *_args: Any, **_kwargs: Any) -> Library:
        """Override of ``Library.__new__``, because an override of ``__init__`` would hide its caller."""
        made = object.__new__(cls)
        if (owner := owner_of(sys._getframe(1), _INTERMEDIARIES)) is not None:
            _owners[made] = owner
        return made

    def guard(name: str, refuse: Callable[..., None]) -> None:
        stock = getattr(Library, name)

        @functools.wraps(stock)
        def stand_in(self: Library, *args: Any, **kwargs: Any) -> Any:
            refuse(self, *args, **kwargs)
            return stock(self, *args, **kwargs)

        setattr(Library, name, stand_in)

    Library.__new__ = new  # type: ignore[method-assign, assignment]
    guard("define", _before_definition)
    guard("impl", _before_kernel)
    guard("_destroy", _before_destroy)


def release(key: object) -> None:
    """Unregister all operators and kernels of a model.

    Args:
        key: the model's scope, or its archive's name.
    """
    gone = []
    for library, owner in list(_owners.items()):
        if owner.key == key:
            successor = _successor(library, owner)
            if successor is None:
                del _owners[library]
                gone.append(library)
            else:
                _owners[library] = successor
    forget_libraries(gone)


def _successor(library: Library, owner: Owner) -> Owner | None:
    """Return another load of the same model whose operators have replaced this library's, or None."""
    names = operators_of(library)
    for other_library, other in _owners.items():
        is_sibling = other.path == owner.path and other.key != owner.key
        if is_sibling and names and names <= operators_of(other_library):
            return other
    return None


def _before_definition(library: Library, schema: object = "", *_: object, **__: object) -> None:
    if library in _owners:
        name = f"{library.ns}::{str(schema).partition('(')[0].strip()}"
        _refuse_if_others(_owners[library], name)


def _before_kernel(library: Library, op_name: object = "", *_: object, **__: object) -> None:
    """Refuse a kernel for another model's operator; models share operators that belong to no model."""
    if library not in _owners:
        return
    # An operator's object prints as namespace.name.overload.
    name = op_name if isinstance(op_name, str) else str(op_name).partition(".")[2].removesuffix(".default")
    name = name.rpartition("::")[2]
    _refuse_if_others(_owners[library], f"{library.ns}::{name}")


def _before_destroy(library: Library) -> None:
    """Refuse that ``custom_op`` removes another model's operator of the same name."""
    owner = _owners.get(library)
    caller = owner_of(sys._getframe(2), _INTERMEDIARIES) if owner is not None else None
    if caller is not None:
        for name in sorted(operators_of(library)):
            _refuse_if_others(caller, name)


def _refuse_if_others(owner: Owner, name: str) -> None:
    for library, other in list(_owners.items()):
        if other.path == owner.path or name not in operators_of(library):
            continue
        raise RuntimeError(
            conflicting(
                owner.path,
                f"the operator {name} of torch's is registered in this interpreter by {other.path}, and "
                f"{owner.path} would register it anew: one of them would answer by the other's code. Give "
                "it another namespace in one of the two, or have them served by pools of their own.",
            )
        )
