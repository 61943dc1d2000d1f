"""The installed TorchServe is the one that interpool relies on, and another one is told apart by name."""

from __future__ import annotations

import ast
import importlib.metadata
import shutil
import zipfile
from pathlib import Path

import model_archiver
import pytest

import interpool.archiver_ext
import interpool.handler
from interpool.archiver_ext.mar.reading import MAR_MANIFEST
from interpool.handler import torchserve
from interpool.handler.frontend import doctor, shim
from interpool.native.diagnostics.doctor import Check
from interpool.native.upstream.requirements import pip_install, requirement

PACKAGES = [Path(str(package.__file__)).parent for package in (interpool.handler, interpool.archiver_ext)]


def doctors(name: str) -> Check:
    (found,) = [check for check in doctor.checks() if check.name == name]
    return found


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Those files of the installed package that interpool relies on."""
    package = torchserve.installed_ts()
    files = {relied.module.replace(".", "/").removeprefix("ts/") + ".py" for relied in torchserve.PYTHON}
    for name in {*files - {"ts.py"}, "__init__.py", "frontend/model-server.jar"}:
        (tmp_path / "ts" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(package / name, tmp_path / "ts" / name)
    assert torchserve.differences(tmp_path / "ts") == []
    return tmp_path / "ts"


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_the_installed_torchserve_is_as_interpool_knows_it() -> None:
    assert torchserve.differences(torchserve.installed_ts()) == []
    assert doctors("torchserve's names").ok


def test_every_difference_is_told_at_once(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    edit(copy / "protocol/otf_message_handler.py", 'msg["modelPath"]', 'msg["path"]')
    edit(copy / "service.py", "def predict(self, batch)", "def predict(self, batch, deadline)")
    edit(copy / "metrics/metric_cache_abstract.py", "_add_default_dims", "_with_default_dims")
    (copy / "context.py").write_text("this is no Python")
    (copy / "model_loader.py").unlink()
    with zipfile.ZipFile(copy / "frontend/model-server.jar", "w") as jar:
        jar.writestr("org/pytorch/serve/wlm/WorkerLifeCycle.class", "model_service_worker.py --sock-type")
    found = torchserve.differences(copy)
    assert [
        line for line in found if "otf_message" in line or ".service." in line or "metric_cache" in line
    ] == [
        "ts.protocol.otf_message_handler._retrieve_load_msg knows no modelPath (what a load command says)",
        "ts.service.Service.predict takes (batch, deadline), not (batch) (answers a batch by backend.codec)",
        "ts.metrics.metric_cache_abstract.MetricCacheAbstract._add_default_dims is missing (is overridden)",
    ]
    assert "ts.context.Context.get_request_header is missing (finds describe and explain)" in found
    assert "ts.model_loader.TsModelLoader._load_default_envelope is missing (finds an envelope)" in found
    assert "the frontend's wlm.ModelManager is missing (what is installed for a model)" in found
    (lacks,) = [line for line in found if "WorkerLifeCycle knows no" in line]
    assert "torch.backends.xeon.run_cpu" in lacks
    assert "model_service_worker.py" not in lacks

    monkeypatch.setattr(doctor, "installed_ts", lambda: copy)
    check = doctors("torchserve's names")
    assert not check.ok
    assert all(line in check.detail for line in found)
    assert check.hint == pip_install("torchserve")


def test_a_package_with_nothing_in_it_lacks_everything(tmp_path: Path) -> None:
    found = torchserve.differences(tmp_path)
    assert len(found) == len(torchserve.PYTHON) + 1
    assert all(" is missing (" in line for line in found[:-1])
    assert found[-1].startswith("the frontend's jar cannot be read")


def test_whatever_the_product_imports_from_torchserve_is_looked_at() -> None:
    known = {(relied.module, relied.name.partition(".")[0]) for relied in torchserve.PYTHON}
    imported = set()
    for path in (path for package in PACKAGES for path in package.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "ts":
                imported |= {(node.module, alias.name) for alias in node.names}
            elif isinstance(node, ast.Import):
                imported |= {(a.name, "__version__") for a in node.names if a.name.partition(".")[0] == "ts"}
    assert ("ts.service", "Service") in imported
    assert imported - known == set()


def test_the_installed_archiver_is_as_interpool_knows_it() -> None:
    assert (doctors("torch-model-archiver").ok, doctors("torch-model-archiver").detail) == (True, "installed")
    known = {(relied.module, relied.name) for relied in torchserve.ARCHIVER}
    imported = {
        (str(node.module), alias.name)
        for package in PACKAGES
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] == "model_archiver"
        for alias in node.names
    }
    assert ("model_archiver.model_packaging", "generate_model_archive") in imported
    assert imported - known == set()


def test_another_archiver_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = Path(str(model_archiver.__file__)).parent
    shutil.copytree(package, tmp_path / "model_archiver")
    utils = tmp_path / "model_archiver/model_packaging_utils.py"
    edit(utils, "tempfile.gettempdir()", "tempfile.mkdtemp()")
    edit(utils, "model_handlers = {", "known_handlers = {")
    monkeypatch.setattr(model_archiver.__spec__, "origin", str(utils.with_name("__init__.py")))
    check = doctors("torch-model-archiver")
    where = "model_archiver.model_packaging_utils"
    (relied,) = [each for each in torchserve.ARCHIVER if each.name == "ModelExportUtils.copy_artifacts"]
    assert not check.ok
    assert check.detail.split("; ") == [
        f"{where}.model_handlers is missing (handlers that are no files of the user's)",
        f"{where}.ModelExportUtils.copy_artifacts knows no gettempdir ({relied.why})",
    ]
    assert check.hint == pip_install("torch-model-archiver")


def test_another_version_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "0.13.0")
    found = doctors("torchserve")
    assert (found.ok, found.detail) == (False, "0.13.0; interpool is tested with 0.12.0 only")
    assert found.hint == "pip install torchserve==0.12.0"


def test_server_and_archiver_are_of_one_version() -> None:
    assert requirement("torchserve").specifier == requirement("torch-model-archiver").specifier


def test_the_shim_knows_the_same_torchserve() -> None:
    """It stands alone, and cannot import what the others share."""
    given = {option: f"value of {option}" for option in torchserve.WORKER_OPTIONS if option != "--async"}
    arguments = shim.Arguments([word for pair in given.items() for word in pair] + ["--async"])
    assert vars(arguments) == {
        "is_async": True,
        **{option[2:].replace("-", "_"): value for option, value in given.items()},
    }
    assert shim.WORKER_SCRIPT == torchserve.WORKER_SCRIPT
    assert shim.MANIFEST == torchserve.MANIFEST == MAR_MANIFEST
    said = shim.started_lines(7, "3.11.2")
    assert [line for line in torchserve.STARTED_LINES if line not in said] == []
