"""Parses JSON strictly and converts it to annotated types.

Supports the types of manifests, jobs and results:

- TypedDict, dataclasses, ``list[...]``, ``Iterable[...]``, ``dict[str, ...]``, unions with None;
- Literal, string enums, str, int, float, bool, bytes (in hex), Path, Any.

Standard library only.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import math
import types
import typing
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, Union, get_args, get_origin, is_typeddict

DEEPEST: Final = 64


class BadJson(ValueError):
    """The JSON is invalid; the message continues a sentence that starts with the document's name.

    Attributes:
        rule: short name of the broken rule.
    """

    def __init__(self, rule: str, what: str) -> None:
        super().__init__(what)
        self.rule = rule


def strict_loads(text: str | bytes) -> Any:
    """Parse JSON (UTF-8) without repeated keys, NaN, infinities, or too deep nesting.

    Raises:
        BadJson: the text breaks one of these rules.
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


def to_json(value: Any) -> str:
    """Return a dataclass as JSON that ``typed`` can read."""
    return json.dumps(dataclasses.asdict(value), default=_plain)


def _plain(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def typed(value: Any, shape: Any, place: str = "") -> Any:
    """Convert a JSON value to a type.

    Args:
        value: a result of ``strict_loads``.
        shape: the type.
        place: the value's location in the document, such as ``entry.kind``.

    Returns:
        An equal value, with the type's enums, paths and dataclasses.

    Raises:
        BadJson: it does not match the type.
    """
    if shape is Any:
        return value
    if is_typeddict(shape):
        return _fields_of(value, shape, shape.__required_keys__, place)
    if dataclasses.is_dataclass(shape):
        make: Any = shape
        return make(**_fields_of(value, make, _required(make), place))
    origin = get_origin(shape)
    if origin in (list, Iterable):
        _expect(isinstance(value, list), value, "a list", place)
        return [typed(part, get_args(shape)[0], f"{place}[{index}]") for index, part in enumerate(value)]
    if origin is dict:
        _expect(isinstance(value, dict), value, "an object", place)
        kind = get_args(shape)[1]
        return {key: typed(part, kind, f"{place}[{shown(key)}]") for key, part in value.items()}
    if origin is Literal:
        _expect_word(value, get_args(shape), place)
        return value
    if origin in (Union, types.UnionType):
        if value is None and type(None) in get_args(shape):
            return None
        (other,) = (each for each in get_args(shape) if each is not type(None))
        return typed(value, other, place)
    return _simple(value, shape, place)


def _simple(value: Any, shape: Any, place: str) -> Any:
    if shape is float:
        _expect(type(value) in (int, float), value, "a number", place)
        return value
    if shape in (str, int, bool):
        words = {str: "text", int: "a whole number", bool: "true or false"}
        _expect(type(value) is shape, value, words[shape], place)
        return value
    if issubclass(shape, enum.StrEnum):
        _expect_word(value, [each.value for each in shape], place)
        return shape(value)
    _expect(isinstance(value, str), value, "text", place)
    if shape is Path:
        return Path(value)
    try:
        return bytes.fromhex(value)
    except ValueError:
        raise BadJson("type", f"has {shown(value)} where {place} is bytes in hex") from None


def _fields_of(value: Any, shape: Any, required: frozenset[str], place: str) -> dict[str, Any]:
    fields = _hints(shape)
    _expect(isinstance(value, dict), value, "an object", place)
    for key in value:
        if key not in fields:
            raise BadJson("unknown-field", f"has a field {shown(_join(place, key))} that is not known")
    for key in fields:
        if key in required and key not in value:
            raise BadJson("missing-field", f"has no field {_join(place, key)!r}")
    return {key: typed(part, fields[key], _join(place, key)) for key, part in value.items()}


@cache
def _hints(shape: Any) -> dict[str, Any]:
    return typing.get_type_hints(shape)


@cache
def _required(shape: Any) -> frozenset[str]:
    missing = dataclasses.MISSING
    return frozenset(
        field.name
        for field in dataclasses.fields(shape)
        if field.default is missing and field.default_factory is missing
    )


def _expect_word(value: Any, words: typing.Collection[str], place: str) -> None:
    _expect(isinstance(value, str) and value in words, value, f"one of {', '.join(words)}", place)


def _expect(good: bool, value: Any, what: str, place: str) -> None:
    if not good:
        raise BadJson("type", f"has {shown(value)} where {place} is {what}")


def _join(place: str, key: str) -> str:
    return f"{place}.{key}" if place else key


def shown(value: Any) -> str:
    """Format a value for messages: ASCII, on one line, shortened."""
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    text = ascii(value) if not isinstance(value, int) or abs(value) < 10**30 else "a huge number"
    return text if len(text) <= 80 else f"{text[:77]}..."
