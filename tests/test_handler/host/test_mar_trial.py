"""``interpool doctor --mar`` says what the server says when the archive is registered."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from proving import build_archive
from test_native.hostile.cases import Case, build_good
from test_native.hostile.every_case import CASES

from interpool.archiver_ext.mar.making import MarRequest, make_mar
from interpool.handler import interpool_handler
from interpool.handler.host.mar_trial import checks

HANDLER = str(Path(str(interpool_handler.__file__)).resolve())
ONE_FOR_EACH_STAGE = [
    next(case for case in CASES if (case.stage, case.rule) == kind)
    for kind in (("structure", "duplicate-name"), ("unpickling", "damaged-pickle"), ("digests", "digest"))
]


def said(path: Path) -> list[tuple[str, bool, str]]:
    return [(check.name, check.ok, check.detail) for check in checks(path)]


def wrapped(package: Path, config: str | None = None) -> Path:
    """The package in a directory as TorchServe extracts it."""
    request = MarRequest(
        package, HANDLER, export_path=package.parent, archive_format="no-archive", model_name="x"
    )
    directory = make_mar(request).output
    if config is not None:
        file = directory / "MAR-INF" / "MANIFEST.json"
        manifest = json.loads(file.read_text())
        manifest["model"]["configFile"] = "model-config.yaml"
        file.write_text(json.dumps(manifest))
        (directory / "model-config.yaml").write_text(config)
    return directory


@pytest.mark.parametrize("wrap", [True, False])
def test_a_good_archive_is_loaded_in_two_interpreters(tmp_path: Path, wrap: bool) -> None:
    package = build_archive(tmp_path / "m.ptpkg", tmp_path / "canary")
    found = said(wrapped(package) if wrap else package)
    assert [(name, ok) for name, ok, _ in found] == [
        ("archive", True),
        ("load in interpreter 1", True),
        ("load in interpreter 2", True),
    ]
    assert "hermetic" in found[0][2]


@pytest.mark.long
@pytest.mark.parametrize("case", ONE_FOR_EACH_STAGE, ids=lambda case: case.rule)
@pytest.mark.parametrize("wrap", [True, False])
def test_an_archive_that_the_server_refuses_fails(tmp_path: Path, case: Case, wrap: bool) -> None:
    good = build_good(tmp_path)
    package = tmp_path / "m.ptpkg"
    package.write_bytes(good.bytes())
    made = wrapped(package) if wrap else tmp_path
    target = made / "m.ptpkg"
    target.write_bytes(case.build(good))
    *_, (name, ok, detail) = said(made if wrap else target)
    assert (name, ok) == ("load in interpreter 1", False)
    assert f"[{case.rule}]" in detail
    assert not (good.traces / "imported").exists() or case.stage == "unpickling"
    assert not (good.traces / "called").exists()


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("interpool: {interpeters: 3}", "unknown setting `interpool.interpeters`"),
        ("interpool: {", "cannot be read"),
        ("a: &a [*a]", "cannot be read"),
    ],
)
def test_a_configuration_that_the_server_refuses_fails(tmp_path: Path, config: str, words: str) -> None:
    package = build_archive(tmp_path / "m.ptpkg", tmp_path / "canary")
    *_, last = checks(wrapped(package, config))
    assert (last.name, last.ok) == ("configuration", False)
    assert words in last.detail
    assert not (tmp_path / "canary").exists()
