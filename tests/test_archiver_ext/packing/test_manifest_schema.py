from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import jsonschema
import pytest

from interpool.archiver_ext import manifest_schema
from interpool.archiver_ext.mar.opening import open_archive
from interpool.archiver_ext.verify.self_test import Sample
from interpool.native.archive.format import SCHEMA

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    found = manifest_schema()
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
def test_manifests_that_packers_may_write_are_valid(
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
        ("inputs", {"args": [{"list": [], "tuple": []}], "kwargs": {}}),
    ],
)
def test_manifests_that_no_packer_writes_are_not_valid(
    schema: dict[str, Any], manifest: dict[str, Any], key: str, value: Any
) -> None:
    manifest[key] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(manifest, schema)
