from __future__ import annotations

import json
import types
from enum import StrEnum
from importlib import resources
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    NamedTuple,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import jsonschema
import pytest

from interpool import archiver_ext
from interpool.archiver_ext.mar.opening import open_archive
from interpool.archiver_ext.verify.self_test import Sample
from interpool.native.archive.format import SCHEMA, Manifest

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA_FILE = resources.files(archiver_ext) / "manifest.schema.json"


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(found)
    return found


@pytest.fixture
def manifest(packed_shop: Path) -> dict[str, Any]:
    """A real archive's, to be changed."""
    with open_archive(packed_shop) as opened:
        return json.loads(json.dumps(opened.manifest))


class Pair(NamedTuple):
    left: int
    right: int


def test_a_real_manifest_is_valid(schema: dict[str, Any], manifest: dict[str, Any]) -> None:
    jsonschema.validate(manifest, schema)
    assert manifest["schema"] == schema["properties"]["schema"]["const"] == SCHEMA


def test_example_inputs_are_described_as_the_schema_says(
    schema: dict[str, Any], manifest: dict[str, Any]
) -> None:
    import torch

    sample = Sample(
        (torch.ones(2, 3), [1, ("a", None)], {"x": {}}, Pair(1, 2), torch.ones(2).shape),
        {"mask": torch.ones(1, dtype=torch.bool)},
    )
    manifest["inputs"] = sample.describe()
    jsonschema.validate(manifest, schema)
    manifest["inputs"]["args"][0]["tensor"]["device"] = "cpu"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(manifest, schema)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (
            "self_test",
            {"package": "interpool-archive", "resource": "t.pkl", "seed": 0, "rtol": 1e-4, "atol": 0},
        ),
        ("data", ["shop/labels.txt"]),
        (
            "serving",
            {
                "batches": "batch",
                "parts": {"dict": {"y": {"list": ["rows"]}}},
                "grad": True,
                "train_mode": False,
            },
        ),
        ("globals", ["collections:OrderedDict", "torch.nn.modules.linear:Linear"]),
        ("modules", {"m": {"action": "mock", "origin": "rules", "reason": "never ran", "imported_by": []}}),
    ],
)
def test_what_packers_may_write_is_valid(
    schema: dict[str, Any], manifest: dict[str, Any], key: str, value: Any
) -> None:
    manifest[key] = value
    jsonschema.validate(manifest, schema)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("schema", 1),
        ("self_test", {"package": "interpool-archive", "resource": "t.pkl"}),
        ("made_on", "Monday"),
        ("entry", {"package": "p", "resource": "r", "kind": "script"}),
        ("modules", {"m": {"action": "intern", "reason": "", "imported_by": [{"module": "x", "line": -1}]}}),
        ("files", {"m.py": "not a digest"}),
        ("globals", ["os"]),
    ],
)
def test_what_no_packer_writes_is_not_valid(
    schema: dict[str, Any], manifest: dict[str, Any], key: str, value: Any
) -> None:
    manifest[key] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(manifest, schema)


def test_the_schema_says_what_the_types_say(schema: dict[str, Any]) -> None:
    assert disagreements(Manifest, schema, schema, "manifest") == []


_SIMPLE = {str: "string", int: "integer", float: "number", bool: "boolean"}


def disagreements(shape: Any, part: dict[str, Any], schema: dict[str, Any], place: str) -> list[str]:
    """Where a part of the JSON Schema allows other values than a type, walking both."""
    if "$ref" in part:
        part = {**part, **schema["$defs"][part["$ref"].removeprefix("#/$defs/")]}
    if shape is Any:  # the type leaves it to the schema
        return []
    if is_typeddict(shape):
        return _typed_dict_disagreements(shape, part, schema, place)
    origin = get_origin(shape)
    if origin is list:
        found = [] if part.get("type") == "array" else [f"{place} is an array"]
        return found + disagreements(get_args(shape)[0], part.get("items", {}), schema, f"{place}[]")
    if origin is dict:
        found = [] if part.get("type") == "object" else [f"{place} is an object"]
        values = part.get("additionalProperties", {})
        return found + disagreements(get_args(shape)[1], values, schema, f"{place}{{}}")
    if origin in (Union, types.UnionType):
        (other,) = (each for each in get_args(shape) if each is not type(None))
        nulls = [each for each in part.get("anyOf", []) if each == {"type": "null"}]
        others = [each for each in part.get("anyOf", []) if each != {"type": "null"}]
        if len(nulls) != 1 or len(others) != 1:
            return [f"{place} may be null or another"]
        return disagreements(other, others[0], schema, place)
    if origin is Literal or (isinstance(shape, type) and issubclass(shape, StrEnum)):
        words = {*get_args(shape)} if origin is Literal else {each.value for each in shape}
        return [] if set(part.get("enum", [])) == words else [f"{place} is one of {words}"]
    good = part.get("type") == _SIMPLE[shape] or type(part.get("const")) is shape
    return [] if good else [f"{place} is {_SIMPLE[shape]}"]


def _typed_dict_disagreements(
    shape: Any, part: dict[str, Any], schema: dict[str, Any], place: str
) -> list[str]:
    hints, properties = get_type_hints(shape), part.get("properties", {})
    good = (
        part.get("type") == "object"
        and part.get("additionalProperties") is False
        and set(part.get("required", [])) == shape.__required_keys__
        and properties.keys() == hints.keys()
    )
    found = [] if good else [f"{place} has exactly the fields {sorted(hints)}"]
    for name in hints.keys() & properties.keys():
        found += disagreements(hints[name], properties[name], schema, f"{place}.{name}")
    return found
