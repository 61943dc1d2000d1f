"""Manifests of older schemas: one that a packer of that time has really written."""

from __future__ import annotations

import json
from typing import Any

import pytest
from paths import ROOT

from interpool.archiver_ext.verify.externs import check_externs
from interpool.native.archive.format import SERVED_AS_KINDS_ARE, Origin, parse_manifest
from interpool.native.errors import ExternError, ManifestError

SCHEMA_2 = ROOT / "tests/test_archiver_ext/manifests" / "schema-2.json"


@pytest.fixture
def manifest() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(SCHEMA_2.read_text())
    return found


def test_schema_2_is_read_with_the_origins_that_its_reasons_tell(manifest: dict[str, Any]) -> None:
    manifest["modules"]["mine"] = {"action": "extern", "reason": "--extern mine.**", "imported_by": []}
    found = parse_manifest(json.dumps(manifest), "m.ptpkg")
    assert found["schema"] == 2
    origins = {name: done["origin"] for name, done in found["modules"].items()}
    of = {origin: {name for name in origins if origins[name] is origin} for origin in Origin}
    assert of[Origin.PROJECT] == {"shop", "shop.nets", "shop.nets.layers", "shop.nets.price", "shop.rates"}
    assert of[Origin.STANDARD_LIBRARY] >= {"builtins", "os", "os.path", "collections.abc"}
    assert {name.split(".")[0] for name in of[Origin.SERVER]} == {"numpy", "torch", "typing_extensions"}
    assert of[Origin.USER] == {"mine"}
    assert of[Origin.RULES] == {"annotated_types"}
    assert (found.pop("serving"), found.pop("request")) == (SERVED_AS_KINDS_ARE, None)  # type: ignore[misc]
    for done in found["modules"].values():
        del done["origin"]  # type: ignore[misc]
    assert found == manifest


def test_what_schema_2_takes_from_the_standard_library_is_looked_for(manifest: dict[str, Any]) -> None:
    record = {"action": "extern", "reason": "standard library", "imported_by": []}
    manifest["modules"]["asynchat_of_old"] = record
    with pytest.raises(ExternError, match="has no module asynchat_of_old"):
        check_externs("m.ptpkg", parse_manifest(json.dumps(manifest), "m.ptpkg"))


def test_an_origin_in_schema_2_is_refused(manifest: dict[str, Any]) -> None:
    manifest["modules"]["torch"]["origin"] = "server"
    with pytest.raises(ManifestError) as caught:
        parse_manifest(json.dumps(manifest), "m.ptpkg")
    assert caught.value.rule == "unknown-field"


@pytest.mark.parametrize("schema", [2, 3])
@pytest.mark.parametrize("field", ["serving", "request"])
def test_what_older_schemas_do_not_know_is_refused(manifest: dict[str, Any], schema: int, field: str) -> None:
    manifest |= {"schema": schema, field: None}
    with pytest.raises(ManifestError) as caught:
        parse_manifest(json.dumps(manifest), "m.ptpkg")
    assert caught.value.rule == "unknown-field"


def test_schema_4_says_how_it_is_served(manifest: dict[str, Any]) -> None:
    manifest["schema"] = 4
    for done in manifest["modules"].values():
        done["origin"] = "rules"
    with pytest.raises(ManifestError, match="no field 'serving'"):
        parse_manifest(json.dumps(manifest), "m.ptpkg")
    manifest["serving"] = {"batches": "batch", "grad": True, "train_mode": False}
    manifest["request"] = {"package": "p", "resource": "r", "content_type": "text/plain", "part": None}
    assert parse_manifest(json.dumps(manifest), "m.ptpkg")["serving"]["batches"] == "batch"
    manifest["request"]["content_type"] = "text/plain'; rm -r ~; '"
    with pytest.raises(ManifestError, match="a request that cannot be"):
        parse_manifest(json.dumps(manifest), "m.ptpkg")


@pytest.mark.parametrize(("change", "rule"), [({}, "missing-field"), ({"origin": "chance"}, "type")])
def test_schema_3_needs_an_origin_that_is_one(
    manifest: dict[str, Any], change: dict[str, str], rule: str
) -> None:
    manifest["schema"] = 3
    for done in manifest["modules"].values():
        done["origin"] = "rules"
    assert parse_manifest(json.dumps(manifest), "m.ptpkg")["schema"] == 3
    torch = manifest["modules"]["torch"]
    manifest["modules"]["torch"] = {key: torch[key] for key in torch if key != "origin"} | change
    with pytest.raises(ManifestError) as caught:
        parse_manifest(json.dumps(manifest), "m.ptpkg")
    assert caught.value.rule == rule
