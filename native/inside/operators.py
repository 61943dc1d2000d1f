"""Operators that models define with ``torch.library``: they go with their model, and a name is one model's.

torch keeps what code registers for as long as a Python lives: each ``Library``, which defines operators or
gives them kernels. In a private interpreter a model is loaded again after it was unloaded, and has
neighbours. So what its code makes is noted as its own, until it is closed (``release``). And what would take
the place of a neighbour's operator is refused before anything has changed (``refusals.conflicting``): one
of the two would answer by the other's kernel.

A ``Library`` is the model's whose code has it made, by torch's functions or itself. What modules of the
environment make when a model imports them, or calls them, is everybody's.
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

# Through these the code that wants a library has it made.
_WAYS = re.compile(r"(torch\._?library|torch\._custom_ops?|functools|contextlib|typing_extensions)(\..*)?")


def install() -> None:
    """Stand in for what makes, fills and empties libraries. Once per interpreter, before any model."""
    from torch.library import Library

    def new(cls: type[Library], *_args: Any, **_kwargs: Any) -> Library:
        """Stands in for ``Library.__new__``. Not for ``__init__``, which notes its caller's line."""
        made = object.__new__(cls)
        if (owner := owner_of(sys._getframe(1), _WAYS)) is not None:
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
    guard("_destroy", _before_end)


def release(key: object) -> None:
    """Take back what the model of that scope, or archive, has registered."""
    gone = []
    for library, owner in list(_owners.items()):
        if owner.key == key:
            heir = _heir(library, owner)
            if heir is None:
                del _owners[library]
                gone.append(library)
            else:
                _owners[library] = heir
    forget_libraries(gone)


def _heir(library: Library, owner: Owner) -> Owner | None:
    """The same model loaded another time, for another worker, whose own operators these have replaced."""
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
    """An operator of no model may get one of each: by a library that both have in their directories."""
    if library not in _owners:
        return
    # An operator's object prints as namespace.name.overload.
    name = op_name if isinstance(op_name, str) else str(op_name).partition(".")[2].removesuffix(".default")
    name = name.rpartition("::")[2]
    _refuse_if_others(_owners[library], f"{library.ns}::{name}")


def _before_end(library: Library) -> None:
    """``custom_op`` removes the operator of that name that there is, and then makes its own."""
    owner = _owners.get(library)
    caller = owner_of(sys._getframe(2), _WAYS) if owner is not None else None
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
