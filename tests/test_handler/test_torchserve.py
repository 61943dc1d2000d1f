"""The installed TorchServe is the one that interpool relies on; differences of another one are named."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

import pytest
from ts.arg_parser import ArgParser

import interpool.archiver_ext
import interpool.handler
from interpool.archiver_ext.mar.reading import MAR_MANIFEST
from interpool.handler import torchserve
from interpool.handler.frontend import serving_checks, shim
from interpool.native.diagnostics.doctor import Check
from interpool.native.upstream.requirements import requirement

PACKAGES = [Path(str(package.__file__)).parent for package in (interpool.handler, interpool.archiver_ext)]


def doctors(name: str) -> Check:
    (found,) = [check for check in serving_checks.checks() if check.name == name]
    return found


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Those files of the installed package that interpool relies on."""
    package = torchserve.installed_ts()
    for name in {*torchserve.TS_FILES, *torchserve.REQUIRED_FILES}:
        (tmp_path / "ts" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(package / name, tmp_path / "ts" / name)
    return tmp_path / "ts"


@pytest.mark.parametrize("name", ["torchserve's files", "torch-model-archiver"])
def test_the_installed_packages_are_as_they_were_released(name: str) -> None:
    assert doctors(name).mark == "ok"


def test_a_file_that_is_changed_or_missing_is_named(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (copy / "service.py").open("a") as file:
        file.write("# changed\n")
    (copy / "model_loader.py").unlink()
    monkeypatch.setattr(serving_checks, "installed_ts", lambda: copy)
    check = doctors("torchserve's files")
    assert (check.ok, check.mark) == (True, "WARN")
    assert check.detail.endswith("these are not those of the release: model_loader.py, service.py")
    assert check.hint == "pip install --force-reinstall --no-deps torchserve==0.12.0"


@pytest.mark.parametrize(
    ("package", "files"), [("ts", torchserve.TS_FILES), ("model_archiver", torchserve.ARCHIVER_FILES)]
)
def test_the_files_of_all_that_the_product_imports_are_looked_at(package: str, files: dict[str, str]) -> None:
    imported = {
        str(node.module).partition(".")[2].replace(".", "/") + ".py"
        for path in (path for own in PACKAGES for path in own.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] == package
    }
    assert imported
    assert imported - files.keys() - {".py"} == set()


def test_server_and_archiver_are_of_one_version() -> None:
    assert requirement("torchserve").specifier == requirement("torch-model-archiver").specifier


def test_the_shim_knows_the_same_torchserve() -> None:
    """It stands alone, and cannot import what the others share."""
    words = ["--sock-type", "unix", "--sock-name", "/a", "--port", "9", "--metrics-config", "/b", "--async"]
    theirs = vars(ArgParser.model_service_worker_args().parse_args(words))
    ours = vars(shim.Arguments(words))
    assert {name: theirs["async_comm" if name == "is_async" else name] or "" for name in ours} == ours
    assert shim.WORKER_SCRIPT == torchserve.WORKER_SCRIPT
    assert shim.MANIFEST == torchserve.MANIFEST == MAR_MANIFEST
    worker = (torchserve.installed_ts() / shim.WORKER_SCRIPT).read_text(encoding="utf-8")
    for line in shim.started_lines(7, "3.11.2").splitlines():
        assert f'"{line.replace("7", "%d", 1).replace("3.11.2", "%s")}"' in worker


def test_a_load_command_is_read_as_it_is_written() -> None:
    command = torchserve.load_command("prix", "/models/é", "handler.py", batch_size=8)
    assert torchserve.name_in_load_command(command) == "prix"
