from __future__ import annotations

import argparse
import json
import os
import shutil
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from click.testing import CliRunner, Result
from model_archiver.arg_parser import ArgParser

from interpool.archiver_ext import PackError
from interpool.archiver_ext.commands.subcommands import commands
from interpool.archiver_ext.mar.making import FORMATS, MarRequest, make_mar
from interpool.archiver_ext.mar.opening import MarFormat
from interpool.native.errors import ArchiveError, DigestError

(ARCHIVE,) = [command for command in commands if command.name == "archive"]


@pytest.fixture
def handler(tmp_path: Path) -> str:
    path = tmp_path / "own_handler.py"
    path.write_text("def handle(data, context): ...\n")
    return str(path)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    path.mkdir()
    return path


def run(*args: str | Path) -> Result:
    return CliRunner().invoke(ARCHIVE, [*map(str, args)])


def content_of(made: Path) -> dict[str, bytes]:
    """The files of a .mar of any format, by name."""
    if made.is_dir():
        return {str(file.relative_to(made)): file.read_bytes() for file in made.rglob("*") if file.is_file()}
    if made.suffix == ".gz":
        with tarfile.open(made) as tar:
            read = {member.name: tar.extractfile(member) for member in tar if member.isfile()}
            return {name.partition("/")[2]: file.read() for name, file in read.items() if file is not None}
    with zipfile.ZipFile(made) as file:
        return {name: file.read(name) for name in file.namelist()}


@pytest.mark.parametrize("archive_format", FORMATS)
def test_a_mar_holds_what_it_is_given_and_nothing_lies_beside_it(
    packed_shop: Path, handler: str, store: Path, tmp_path: Path, archive_format: MarFormat
) -> None:
    (tmp_path / "more/deep").mkdir(parents=True)
    (tmp_path / "more/deep/a.txt").write_text("a")
    for name in ("labels.txt", "pip.txt", "conf.yaml", "net.py"):
        (tmp_path / name).write_text(f"name: {name}")
    report = make_mar(
        MarRequest(
            packed_shop,
            handler,
            export_path=store,
            archive_format=archive_format,
            extra_files=(str(tmp_path / "lab*.txt"), str(tmp_path / "more")),
            model_file=tmp_path / "net.py",
            requirements_file=tmp_path / "pip.txt",
            config_file=tmp_path / "conf.yaml",
        )
    )
    found = content_of(report.output)
    manifest = json.loads(found.pop("MAR-INF/MANIFEST.json"))["model"]
    assert manifest == {
        "modelName": "shop",
        "serializedFile": "shop.ptpkg",
        "handler": "own_handler.py",
        "modelFile": "net.py",
        "modelVersion": "1.0",
        "requirementsFile": "pip.txt",
        "configFile": "conf.yaml",
    }
    assert found.pop("shop.ptpkg") == packed_shop.read_bytes()
    assert {name: text.decode() for name, text in found.items() if name != "own_handler.py"} == {
        "labels.txt": "name: labels.txt",
        "net.py": "name: net.py",
        "pip.txt": "name: pip.txt",
        "conf.yaml": "name: conf.yaml",
        "deep/a.txt": "a",
    }
    assert [path.name for path in store.iterdir()] == [report.output.name] == [report.url]
    assert report.size == sum(
        path.stat().st_size
        for path in ([report.output] if report.output.is_file() else report.output.rglob("*"))
    )


def test_weights_are_stored_unless_asked_otherwise(packed_shop: Path, handler: str, store: Path) -> None:
    with zipfile.ZipFile(make_mar(MarRequest(packed_shop, handler, export_path=store)).output) as mar:
        assert {info.compress_type for info in mar.infolist()} == {zipfile.ZIP_STORED}


def test_flags_are_those_of_torch_model_archiver() -> None:
    with patch.object(argparse.ArgumentParser, "parse_args", autospec=True) as parse:
        parse.side_effect = lambda parser: parser
        with patch("model_archiver.arg_parser.ModelArchiverConfig.from_args", lambda parser: parser):
            stock: Any = ArgParser.export_model_args_parser()
    ours = {option: each for each in ARCHIVE.params for option in each.opts}
    for action in stock._actions:
        if isinstance(action, argparse._HelpAction):
            continue
        for flag in action.option_strings:
            kind = ours[flag].type
            assert not action.choices or set(kind.choices) == set(action.choices)  # type: ignore[attr-defined]
            assert isinstance(action, argparse._StoreTrueAction) == ours[flag].is_flag  # type: ignore[attr-defined]


def test_the_command_prints_how_to_go_on(packed_shop: Path, handler: str, store: Path) -> None:
    args = ["--serialized-file", packed_shop, "--handler", handler, "--export-path", store, "-v", "3"]
    said = run(*args, "--archive-format", "tgz").output
    assert f"wrapped {store / 'shop.tar.gz'} (tgz, " in said
    assert "model shop, version 3" in said
    assert '"http://127.0.0.1:8081/models?url=shop.tar.gz&initial_workers=1&synchronous=true"' in said
    report = json.loads(run(*args, "--model-name", "other", "--json").stdout)
    assert set(report) == {
        "output", "model_name", "version", "archive_format", "size", "seconds", "warnings", "url", "curl",
    }  # fmt: skip
    assert (report["output"], report["url"]) == (str(store / "other.mar"), "other.mar")
    assert report["archive_format"] == "zip-store"


def test_a_damaged_archive_is_not_wrapped(
    packed_shop: Path, handler: str, store: Path, tmp_path: Path
) -> None:
    content = packed_shop.read_bytes()
    damaged = tmp_path / "damaged.ptpkg"
    damaged.write_bytes(content.replace(b"RATE = 2", b"RATE = 3"))
    with pytest.raises(DigestError, match=r"shop/rates\.py"):
        make_mar(MarRequest(damaged, handler, export_path=store))
    damaged.write_bytes(content[:-40])
    with pytest.raises(ArchiveError, match="cut short"):
        make_mar(MarRequest(damaged, handler, export_path=store))
    assert list(store.iterdir()) == []


def test_an_existing_archive_is_replaced_by_force_only(packed_shop: Path, handler: str, store: Path) -> None:
    formats: list[tuple[MarFormat, str]] = [("zip-store", "shop.mar"), ("no-archive", "shop")]
    for archive_format, name in formats:
        request = MarRequest(packed_shop, handler, export_path=store, archive_format=archive_format)
        made = make_mar(request).output
        if made.is_dir():
            (made / "left-over").touch()
        with pytest.raises(PackError, match=f"{name} exists already; give --force"):
            make_mar(request)
        found = content_of(make_mar(replace(request, version="2", force=True)).output)
        assert json.loads(found["MAR-INF/MANIFEST.json"])["model"]["modelVersion"] == "2"
        assert "left-over" not in found
    (store / "other.mar").mkdir()
    with pytest.raises(PackError, match="is a directory, and --force replaces like by like"):
        make_mar(MarRequest(packed_shop, handler, "other", export_path=store, force=True))


def test_force_replaces_no_directory_that_is_no_model(packed_shop: Path, handler: str, store: Path) -> None:
    sources = store / "shop"
    sources.mkdir()
    (sources / "model.py").write_text("precious")
    request = MarRequest(packed_shop, handler, export_path=store, archive_format="no-archive", force=True)
    with pytest.raises(PackError, match=r"shop is a directory, and no model's"):
        make_mar(request)
    assert (sources / "model.py").read_text() == "precious"
    (sources / "model.py").unlink()
    assert (make_mar(request).output / "MAR-INF/MANIFEST.json").is_file()


@pytest.mark.parametrize("archive_format", ["zip-store", "tgz", "no-archive"])
def test_force_replaces_no_pipe(
    packed_shop: Path, handler: str, store: Path, archive_format: MarFormat
) -> None:
    request = MarRequest(packed_shop, handler, export_path=store, archive_format=archive_format)
    made = make_mar(request).output
    shutil.rmtree(made) if made.is_dir() else made.unlink()
    os.mkfifo(made)
    with pytest.raises(PackError, match="remove it yourself"):
        make_mar(replace(request, force=True))
    assert made.is_fifo()


def test_a_failure_leaves_what_was_there(packed_shop: Path, handler: str, store: Path) -> None:
    there = store / "shop.mar"
    there.write_bytes(b"before")
    with (
        patch("model_archiver.model_packaging.generate_model_archive", side_effect=OSError("disk full")),
        pytest.raises(PackError, match=r"torch-model-archiver cannot wrap .*disk full"),
    ):
        make_mar(MarRequest(packed_shop, handler, export_path=store, force=True))
    assert there.read_bytes() == b"before"
    assert list(store.iterdir()) == [there]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"export_path": Path("/nowhere")}, "/nowhere is not a directory"),
        ({"handler": "missing.py"}, r"--handler missing\.py: there is no such file"),
        ({"handler": "missing:entry"}, r"--handler missing\.py: there is no such file"),
        ({"config_file": Path("missing.yaml")}, r"--config-file missing\.yaml: there is no such file"),
        ({"extra_files": ("missing.txt",)}, r"--extra-files missing\.txt: there is no such file"),
        ({"model_name": "a b"}, "cannot be the name of a model in TorchServe"),
        ({"model_name": ".hidden"}, "cannot be the name of a model in TorchServe"),
    ],
)
def test_bad_arguments_are_refused(
    packed_shop: Path, handler: str, store: Path, change: dict[str, Any], said: str
) -> None:
    request = MarRequest(**{"package": packed_shop, "handler": handler, "export_path": store, **change})
    with pytest.raises(PackError, match=said):
        make_mar(request)
    assert list(store.iterdir()) == []


def test_a_config_file_must_be_yaml_with_names(
    packed_shop: Path, handler: str, store: Path, tmp_path: Path
) -> None:
    config = tmp_path / "c.yaml"
    for text, said in (("a: [", "cannot be read as YAML"), ("- a", "must hold settings by name")):
        config.write_text(text)
        with pytest.raises(PackError, match=said):
            make_mar(MarRequest(packed_shop, handler, export_path=store, config_file=config))


def test_two_files_of_one_name_are_refused(
    packed_shop: Path, handler: str, store: Path, tmp_path: Path
) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more/own_handler.py").touch()
    (tmp_path / "more/shop.ptpkg").touch()
    for extra, name in (("more", "own_handler.py"), ("more/shop.ptpkg", "shop.ptpkg")):
        request = MarRequest(packed_shop, handler, export_path=store, extra_files=(str(tmp_path / extra),))
        with pytest.raises(PackError, match=f"would both become {name} in the model's directory"):
            make_mar(request)


def test_a_mar_is_not_wrapped_again(packed_shop: Path, handler: str, store: Path) -> None:
    made = make_mar(MarRequest(packed_shop, handler, export_path=store)).output
    with pytest.raises(PackError, match="is a TorchServe archive already"):
        make_mar(MarRequest(made, handler, "again", export_path=store))
