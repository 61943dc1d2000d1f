from __future__ import annotations

import json
import os
import tarfile
import zipfile
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from archives import TORCH, manifest_of, module_records, write_archive
from click.testing import CliRunner, Result

from interpool.archiver_ext.commands.subcommands import commands
from interpool.archiver_ext.inspect.inspection import inspect_archive
from interpool.archiver_ext.mar.making import FORMATS, MarRequest, make_mar
from interpool.handler.cli import main
from interpool.native.archive.format import parse_manifest
from interpool.native.errors import ArchiveError

if TYPE_CHECKING:
    from pathlib import Path

    from interpool.archiver_ext.mar.opening import MarFormat

MODULES = module_records(["torch"], {"m": ()})
MEMBERS = {"m.py": "x = 1"}
MANIFEST = manifest_of({}, modules=MODULES)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "m.ptpkg"
    write_archive(path, MODULES, MEMBERS, externs=[TORCH])
    return path


def mar_around(archive: Path, **model: str) -> Path:
    path = archive.with_suffix(".mar")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("MAR-INF/MANIFEST.json", json.dumps({"model": model}))
        file.write(archive, archive.name)
    return path


def inspect(*args: str | Path) -> Result:
    (command,) = [command for command in commands if command.name == "inspect"]
    return CliRunner().invoke(command, [*map(str, args)])


@pytest.mark.parametrize("archive_format", FORMATS)
def test_an_archive_and_what_torchserve_is_given_of_it_say_the_same(
    packed_shop: Path, tmp_path: Path, archive_format: MarFormat
) -> None:
    extra = tmp_path / "labels.txt"
    extra.write_text("cat")
    handler = tmp_path / "own_handler.py"
    handler.write_text("def handle(data, context): ...")
    request = MarRequest(
        packed_shop, str(handler), "boutique", "2.5", tmp_path, archive_format, extra_files=(str(extra),)
    )
    plain = inspect_archive(packed_shop).as_dict()
    wrapped = inspect_archive(make_mar(request).output).as_dict()
    assert plain["mar"] is None
    assert wrapped["mar"] == {
        "archive_format": archive_format,
        "model": {
            "modelName": "boutique",
            "modelVersion": "2.5",
            "handler": "own_handler.py",
            "serializedFile": "shop.ptpkg",
        },
        "files": {"labels.txt": 3, "own_handler.py": handler.stat().st_size},
    }
    assert {**wrapped, "archive": "", "mar": None} == {**plain, "archive": ""}


def test_all_that_is_known_is_in_the_json(packed_shop: Path) -> None:
    found = json.loads(inspect(packed_shop, "--json").output)
    assert found["counts"] == Counter(done["action"] for done in found["modules"].values()) | {"mock": 0}
    assert found["size"] == packed_shop.stat().st_size
    assert found["members"]["shop/rates.py"] == 47
    assert found["storages"][0] == {
        "member": ".data/0.storage",
        "bytes": 48,
        "dtype": "float32",
        "tensors": [
            {"name": "tied", "shape": [3, 4], "dtype": "float32"},
            {"name": "body.weight", "shape": [3, 4], "dtype": "float32"},
        ],
    }
    assert found["signature"] == {"signed": False, "fingerprint": ""}
    assert found["entry"]["kind"] == "module"
    assert {"torch", "numpy"} <= {each["distribution"] for each in found["externs"]}
    assert found["notes"] == []


def test_text_shows_it_to_people(packed_shop: Path) -> None:
    said, found = inspect(packed_shop).output, inspect_archive(packed_shop)
    for words in (
        "module in interpool-archive/entry.pkl",
        f"{found.count('intern')} interned, {found.count('extern')} extern, 0 mocked",
        "4 storages, 72 B",
        "body.weight [3, 4]",
        "signature: unsigned",
        "self-test: none",
        "├── .data/  8 files",
        "│   └── rates.py  47 B",
    ):
        assert words in said
    (line,) = [line for line in said.splitlines() if line.startswith("the server must have: ")]
    assert "torch 2." in line


def test_inputs_self_test_data_and_signature_are_shown(archive: Path) -> None:
    shown: dict[str, Any] = {
        "inputs": {
            "args": [{"tensor": {"dtype": "float32", "shape": [1, 3]}}, {"list": [{"type": "str"}]}],
            "kwargs": {"mask": {"dict": {"k": {"type": "NoneType"}}}},
        },
        "self_test": {
            "package": "interpool-archive",
            "resource": "self-test.pkl",
            "seed": 0,
            "rtol": 1e-4,
            "atol": 1e-5,
        },
        "data": ["m.py"],
    }
    members = {**MEMBERS, "interpool-archive/self-test.pkl": "N."}
    write_archive(archive, MODULES, members, signature="{}", **shown)
    said = inspect(archive).output
    assert "inputs: (float32[1, 3], [str], mask={k: NoneType})" in said
    assert "self-test: self-test.pkl, rtol 0.0001, atol 1e-05" in said
    assert "data: m.py, 5 B" in said
    assert "signature: signed" in said


def test_none_of_the_archives_code_runs(archive: Path, tmp_path: Path) -> None:
    canary = tmp_path / "ran"
    evil = {
        "interpool-archive/entry.pkl": f"cos\nmkdir\n(V{canary}\ntR.",
        "evil.py": f"import os; os.mkdir({str(canary)!r})",
    }
    write_archive(archive, MODULES, {**MEMBERS, **evil})
    assert inspect(archive).exit_code == 0
    assert not canary.exists()


def test_torch_package_without_a_manifest_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plain.ptpkg"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("plain/model.pkl", "x")
        file.writestr("plain/.data/version", "6")
        file.writestr("plain/.data/extern_modules", "torch")
    with pytest.raises(ArchiveError, match="was not made by interpool pack"):
        inspect_archive(path)


def test_a_tar_gz_that_is_damaged_behind_its_package_is_refused(archive: Path, tmp_path: Path) -> None:
    mar, extra = tmp_path / "cut.tar.gz", tmp_path / "extra"
    manifest = tmp_path / "MANIFEST.json"
    manifest.write_text(json.dumps({"model": {"modelName": "m", "serializedFile": archive.name}}))
    extra.write_bytes(os.urandom(1 << 20))
    with tarfile.open(mar, "w:gz") as tar:
        tar.add(manifest, "m/MAR-INF/MANIFEST.json")
        tar.add(archive, f"m/{archive.name}")
        tar.add(extra, "m/extra")
    os.truncate(mar, mar.stat().st_size - (1 << 19))
    with pytest.raises(ArchiveError, match=r"is a damaged \.tar\.gz"):
        inspect_archive(mar)


def test_mar_that_names_no_package_is_refused(archive: Path) -> None:
    with pytest.raises(ArchiveError, match="names no serialized file in it"):
        inspect_archive(mar_around(archive, serializedFile="other.ptpkg"))
    with pytest.raises(ArchiveError, match="names no serialized file in it"):
        inspect_archive(mar_around(archive))


@pytest.mark.parametrize(
    ("command", "content"), [("inspect", "zip"), ("inspect", None), ("verify", "zip"), ("verify", "no zip")]
)
def test_an_ordinary_mar_is_refused_with_the_command_that_tries_it(
    tmp_path: Path, content: str | None, command: str
) -> None:
    weights = tmp_path / "w eights.pth"
    with zipfile.ZipFile(weights, "w") as file:
        file.writestr("archive/data.pkl", "x")
    if content == "no zip":
        weights.write_bytes(b"\x80\x02" * 100)
    mar = mar_around(weights, **({"serializedFile": weights.name} if content else {}))
    (found,) = [each for each in commands if each.name == command]
    done = CliRunner().invoke(found, [str(mar)])
    assert isinstance(done.exception, ArchiveError)
    assert f"`interpool doctor --mar '{mar}'` says whether a pool can serve it" in str(done.exception)


MISSPELT = "interpool: {interpeters: 3}", "unknown setting `interpool.interpeters`"


@pytest.mark.parametrize(
    ("archive_format", "config", "refused"),
    [
        *((archive_format, *MISSPELT) for archive_format in FORMATS),
        ("zip-store", "interpool: [1]", "must hold settings by name"),
        ("zip-store", "interpool: {interpreters: 3}", ""),
    ],
)
def test_a_configuration_that_a_server_refuses_is_a_note(
    packed_shop: Path, tmp_path: Path, archive_format: MarFormat, config: str, refused: str
) -> None:
    handler = tmp_path / "own_handler.py"
    handler.write_text("def handle(data, context): ...")
    (tmp_path / "config.yaml").write_text(config)
    request = MarRequest(
        packed_shop,
        str(handler),
        export_path=tmp_path,
        archive_format=archive_format,
        config_file=tmp_path / "config.yaml",
    )
    made = make_mar(request).output
    done = CliRunner().invoke(main, ["inspect", str(made), "--json"])
    assert done.exit_code == 0
    notes = json.loads(done.stdout)["notes"]
    if not refused:
        assert notes == []
        return
    assert "a server refuses its configuration" in notes[0]
    assert refused in notes[0]
    assert f"{made} (config.yaml in it)" in notes[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "is not a JSON object"),
        (json.dumps({**MANIFEST, "schema": 99}), "schema 99, this interpool reads schema 5"),
        (json.dumps({**MANIFEST, "entry": {}}), "has no field 'entry.package'"),
        (json.dumps({**MANIFEST, "files": {"m.py": 1}}), "has 1 where files.'m.py'. is text"),
        (json.dumps({**MANIFEST, "files": {"m.py": "00"}}), "a digest that is not SHA-256"),
    ],
)
def test_bad_manifest_is_refused(text: str, said: str) -> None:
    with pytest.raises(ArchiveError, match=said):
        parse_manifest(text, "m.ptpkg")
