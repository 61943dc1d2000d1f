"""Names of a module's attributes, as code asks for them.

pickle interns the names of the attributes that it sets. ``torch.nn.Module`` sets its own, with the strings
that the pickle made: equal to those that code asks with, and not the same. Each look at one would compare
text, and CPython's specialised loads of attributes would never fit.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from typing import Any

from interpool.native.upstream.torch_private import MODULE_ATTRIBUTES


def named_in(state: dict[Any, Any]) -> list[dict[Any, Any]]:
    """A module's state, and what is by name in it; dicts of other classes have their own ways to change."""
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
