from __future__ import annotations

import hashlib
import json
import zipfile
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from interpool.archiver_ext.cli import commands
from interpool.archiver_ext.inspection import inspect_archive
from interpool.native.archive_format import SCHEMA, parse_manifest
from interpool.native.errors import ArchiveError, StructureError

if TYPE_CHECKING:
    from pathlib import Path

MANIFEST = {
    "schema": SCHEMA,
    "entry": {"package": "interpool-archive", "resource": "entry.pkl", "kind": "module"},
    "made_with": {"python": "3.11.7", "torch": "2.13.0", "interpool": "0.1.0"},
    "externs": [{"module": "torch", "distribution": "torch", "version": "2.13.0"}],
    "modules": {
        "m": {"action": "intern", "reason": "in the project", "imported_by": []},
        "torch": {"action": "extern", "reason": "every server has it", "imported_by": []},
    },
    "globals": [],
    "data": [],
    "inputs": None,
    "self_test": None,
    "files": {},
}
MEMBERS = {
    "m.py": "x = 1",
    ".data/version": "6",
    ".data/extern_modules": "torch",
    "interpool-archive/entry.pkl": "N.",
}


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "m.ptpkg"
    with zipfile.ZipFile(path, "w") as file:
        for name, content in MEMBERS.items():
            file.writestr(f"archive/{name}", content)
        digests = {name: hashlib.sha256(content.encode()).hexdigest() for name, content in MEMBERS.items()}
        manifest = json.dumps({**MANIFEST, "files": digests})
        file.writestr("archive/interpool-archive/manifest.json", manifest)
    return path


def mar_around(archive: Path, **model: str) -> Path:
    path = archive.with_suffix(".mar")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("MAR-INF/MANIFEST.json", json.dumps({"model": model}))
        file.write(archive, archive.name)
    return path


def test_archive_and_the_mar_around_it_say_the_same(archive: Path) -> None:
    found = inspect_archive(archive)
    wrapped = inspect_archive(mar_around(archive, serializedFile="m.ptpkg"))
    assert found.as_dict()["counts"] == {"intern": 1, "extern": 1, "mock": 0}
    assert found.sizes["m.py"] == 5
    assert found.size == archive.stat().st_size
    assert {**wrapped.as_dict(), "archive": ""} == {**found.as_dict(), "archive": ""}


def test_command_prints_text_or_json(archive: Path) -> None:
    (command,) = [command for command in commands if command.name == "inspect"]
    text = CliRunner().invoke(command, [str(archive)])
    assert text.exit_code == 0
    assert "1 interned, 1 extern, 0 mocked" in text.output
    assert "the server must have: torch 2.13.0" in text.output
    value = json.loads(CliRunner().invoke(command, [str(archive), "--json"]).output)
    assert value["entry"]["kind"] == "module"


def test_missing_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match=r"none\.ptpkg: cannot be read \(No such file"):
        inspect_archive(tmp_path / "none.ptpkg")


def test_truncated_archive_is_refused(archive: Path) -> None:
    archive.write_bytes(archive.read_bytes()[:-30])
    with pytest.raises(ArchiveError, match="not a zip archive, or was cut short"):
        inspect_archive(archive)


def test_torch_package_without_a_manifest_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plain.ptpkg"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("plain/model.pkl", "x")
        file.writestr("plain/.data/version", "6")
        file.writestr("plain/.data/extern_modules", "torch")
    with pytest.raises(ArchiveError, match="was not made by interpool pack"):
        inspect_archive(path)


def test_mar_that_names_no_package_is_refused(archive: Path) -> None:
    with pytest.raises(ArchiveError, match="names no serialized file in it"):
        inspect_archive(mar_around(archive, serializedFile="other.ptpkg"))
    with pytest.raises(ArchiveError, match="names no serialized file in it"):
        inspect_archive(mar_around(archive))


def test_mar_that_is_a_bomb_is_refused(archive: Path) -> None:
    archive.write_bytes(bytes(80 << 20))
    with pytest.raises(StructureError, match=r"would unpack from .* to 83,886,080 bytes"):
        inspect_archive(mar_around(archive, serializedFile="m.ptpkg"))


def test_mar_that_is_damaged_is_refused(archive: Path) -> None:
    mar = mar_around(archive, serializedFile="m.ptpkg")
    data = bytearray(mar.read_bytes())
    with zipfile.ZipFile(mar) as file:
        at = file.getinfo("m.ptpkg").header_offset
    data[at + 60 : at + 90] = b"\xff" * 30
    mar.write_bytes(data)
    with pytest.raises(StructureError, match=r"m\.ptpkg in it is damaged"):
        inspect_archive(mar)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "is not a JSON object"),
        (json.dumps({**MANIFEST, "schema": 99}), "schema 99, this interpool reads schema 2"),
        (json.dumps({**MANIFEST, "entry": {}}), "has no field 'entry.package'"),
        (json.dumps({**MANIFEST, "files": {"m.py": 1}}), "has 1 where files.'m.py'. is text"),
        (json.dumps({**MANIFEST, "files": {"m.py": "00"}}), "a digest that is no SHA-256"),
    ],
)
def test_bad_manifest_is_refused(text: str, said: str) -> None:
    with pytest.raises(ArchiveError, match=said):
        parse_manifest(text, "m.ptpkg")
