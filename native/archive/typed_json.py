"""JSON that is read strictly, and held against a TypedDict's annotations.

Knows what a manifest's types are made of: TypedDict, ``list[...]``, ``dict[str, ...]``,
Literal, unions with None, str, int, float, Any. Standard library only.
"""

from __future__ import annotations

import json
import math
import types
import typing
from functools import cache
from typing import Any, Final, Literal, Union, get_args, get_origin, is_typeddict

DEEPEST: Final = 64


class BadJson(ValueError):
    """What is wrong, as the rest of a sentence that starts with the document's name.

    Attributes:
        rule: short name.
    """

    def __init__(self, rule: str, what: str) -> None:
        super().__init__(what)
        self.rule = rule


def strict_loads(text: str | bytes) -> Any:
    """JSON (UTF-8) without repeated keys, NaN, infinities, or lists and objects too deep to handle.

    Raises:
        BadJson: it is not that.
    """
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        value = json.loads(text, object_pairs_hook=_object, parse_constant=_constant, parse_float=_float)
    except BadJson:
        raise
    except (ValueError, RecursionError, MemoryError) as error:
        raise BadJson("json", f"is not JSON ({error})") from None
    _check_depth(value)
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise BadJson("duplicate-key", f"says {shown(key)} twice")
            seen.add(key)
    return value


def _constant(name: str) -> Any:
    raise BadJson("number", f"holds {name}, which is not JSON")


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise BadJson("number", f"holds the number {shown(text)}, which is too large")
    return value


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(DEEPEST):
        level = [part for each in level for part in _parts(each)]
        if not level:
            return
    raise BadJson("depth", f"nests more than {DEEPEST} lists and objects in each other")


def _parts(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def check_shape(value: Any, shape: Any, place: str = "") -> None:
    """Hold a JSON value against a type.

    Args:
        value: what ``strict_loads`` gave.
        shape: the type.
        place: where the value lies in the document, such as ``entry.kind``.

    Raises:
        BadJson: it is not of that type.
    """
    if shape is Any:
        return
    if is_typeddict(shape):
        _check_typed_dict(value, shape, place)
        return
    origin = get_origin(shape)
    if origin is list:
        _expect(isinstance(value, list), value, "a list", place)
        for index, part in enumerate(value):
            check_shape(part, get_args(shape)[0], f"{place}[{index}]")
    elif origin is dict:
        _expect(isinstance(value, dict), value, "an object", place)
        for key, part in value.items():
            check_shape(part, get_args(shape)[1], f"{place}[{shown(key)}]")
    elif origin is Literal:
        words = get_args(shape)
        _expect(isinstance(value, str) and value in words, value, f"one of {', '.join(words)}", place)
    elif origin in (Union, types.UnionType):
        if value is not None or type(None) not in get_args(shape):
            (other,) = (each for each in get_args(shape) if each is not type(None))
            check_shape(value, other, place)
    elif shape is float:
        _expect(type(value) in (int, float), value, "a number", place)
    else:
        _expect(type(value) is shape, value, {str: "text", int: "a whole number"}[shape], place)


def _check_typed_dict(value: Any, shape: Any, place: str) -> None:
    fields, required = _fields(shape)
    _expect(isinstance(value, dict), value, "an object", place)
    for key in value:
        if key not in fields:
            raise BadJson("unknown-field", f"has a field {shown(_join(place, key))} that is not known")
    for key, field in fields.items():
        if key in value:
            check_shape(value[key], field, _join(place, key))
        elif key in required:
            raise BadJson("missing-field", f"has no field {_join(place, key)!r}")


@cache
def _fields(shape: Any) -> tuple[dict[str, Any], frozenset[str]]:
    return typing.get_type_hints(shape), shape.__required_keys__


def _expect(good: bool, value: Any, what: str, place: str) -> None:
    if not good:
        raise BadJson("type", f"has {shown(value)} where {place} is {what}")


def _join(place: str, key: str) -> str:
    return f"{place}.{key}" if place else key


def shown(value: Any) -> str:
    """A value as messages show it: ASCII, on one line, not too long."""
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    text = ascii(value) if not isinstance(value, int) or abs(value) < 10**30 else "a huge number"
    return text if len(text) <= 80 else f"{text[:77]}..."
