"""Interns the names of a module's attributes.

pickle interns the attribute names that it sets itself. ``torch.nn.Module`` sets its attributes with the
pickle's own strings, which are equal to those in code but not identical. Each access would compare text, and
CPython could not specialize attribute loads.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from typing import Any

from interpool.native.upstream.torch_private import MODULE_ATTRIBUTES


def named_in(state: dict[Any, Any]) -> list[dict[Any, Any]]:
    """Return a module's state and its tables of attributes.

    Dicts of other classes have their own methods to change.
    """
    tables = (state, *map(state.get, MODULE_ATTRIBUTES))
    return [each for each in tables if isinstance(each, dict) and type(each) in (dict, OrderedDict)]


def intern_names(state: dict[Any, Any]) -> None:
    """Intern the names in a module's state, in place and in their order."""
    for names in named_in(state):
        _intern_keys(names)


def _intern_keys(names: dict[Any, Any]) -> None:
    items = list(names.items())
    names.clear()
    for name, value in items:
        names[sys.intern(name) if type(name) is str else name] = value
