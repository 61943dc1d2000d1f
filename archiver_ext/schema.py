"""The JSON Schema of the manifest, made from its types."""

from __future__ import annotations

import types
from enum import StrEnum
from inspect import getdoc
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from interpool.native.archive.format import SCHEMA, Manifest

# No number of a manifest is negative.
_SIMPLE: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer", "minimum": 0},
    float: {"type": "number", "minimum": 0},
    bool: {"type": "boolean"},
}


def manifest_schema() -> dict[str, Any]:
    """Return the manifest's JSON Schema (2020-12).

    It has the fields, their types and the form of digests. ``interpool verify`` checks more.
    """
    schema = _schema_of(Manifest)
    properties = schema["properties"]
    properties["schema"] = {"const": SCHEMA}
    properties["files"]["additionalProperties"] = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
    properties["globals"]["items"] = {"type": "string", "pattern": "^[^:]+:[^:]+$"}
    properties["inputs"] = _or_null(_object(args=_list("value"), kwargs=_map("value")))
    properties["serving"]["properties"]["parts"] = _or_null({"$ref": "#/$defs/parts"})
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "$defs": {"value": _value(), "parts": _parts()},
    }


def _schema_of(shape: Any) -> dict[str, Any]:
    if shape is Any:
        return {}
    if is_typeddict(shape):
        fields = {name: _schema_of(field) for name, field in get_type_hints(shape).items()}
        made = {**_object(**fields), "required": sorted(shape.__required_keys__)}
        text = getdoc(shape)  # none by `python -OO`
        return {"description": text, **made} if text else made
    origin, arguments = get_origin(shape), get_args(shape)
    if origin is list:
        return {"type": "array", "items": _schema_of(arguments[0])}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema_of(arguments[1])}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (Union, types.UnionType):
        (other,) = (each for each in arguments if each is not type(None))
        return _or_null(_schema_of(other))
    if issubclass(shape, StrEnum):
        return {"enum": [each.value for each in shape]}
    return _SIMPLE[shape]


def _value() -> dict[str, Any]:
    """Return the schema of a described example input."""
    shape = {"type": "array", "items": _SIMPLE[int]}
    kinds = {
        "tensor": _object(dtype=_SIMPLE[str], shape=shape),
        "list": _list("value"),
        "tuple": _list("value"),
        "dict": _map("value"),
        "type": _SIMPLE[str],
    }
    return {"anyOf": [_object(**{kind: inner}) for kind, inner in kinds.items()]}


def _parts() -> dict[str, Any]:
    """Return the schema of the division of a batch's answer."""
    return {"anyOf": [{"enum": ["rows", "none"]}, _object(list=_list("parts")), _object(dict=_map("parts"))]}


def _object(**fields: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "required": [*fields], "properties": fields}


def _list(definition: str) -> dict[str, Any]:
    return {"type": "array", "items": {"$ref": f"#/$defs/{definition}"}}


def _map(definition: str) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": {"$ref": f"#/$defs/{definition}"}}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [{"type": "null"}, schema]}
