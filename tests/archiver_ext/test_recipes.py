"""The sample models, packed, wrapped by the stock archiver, and loaded without interpool."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from archiver_ext.stock import run_stock

from interpool.archiver_ext import PackReport, pack
from interpool.archiver_ext.inspection import inspect_archive

ROOT = Path(__file__).parents[2]
STORE = ROOT / "model_store"
NAMES = ("bert", "convnet")

IMAGE = [[[(x * y * c) % 7 / 7 for x in range(32)] for y in range(32)] for c in (1, 2, 3)]

REQUESTS: dict[str, list[dict[str, Any]]] = {
    "bert": [
        {"json": json.loads((STORE / "bert/sample.json").read_text())},
        {"base64": base64.b64encode("Plain text: ünïcödé, no JSON.".encode()).decode()},
    ],
    "convnet": [
        {"json": {"image": IMAGE}},
        {"base64": base64.b64encode((STORE / "convnet/sample.png").read_bytes()).decode()},
    ],
}  # fmt: skip

# Both archives in one process, each batch answered at once.
FROM_ARCHIVES = """
import base64
requests = json.loads(open(sys.argv[1]).read())
answers = {}
models = {name: load(path) for name, path in zip(requests, sys.argv[2:])}
for name, bodies in requests.items():
    rows = [{"body": each["json"] if "json" in each else base64.b64decode(each["base64"])} for each in bodies]
    answers[name] = models[name].handle(rows, None)
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, PackReport]:
    folder = tmp_path_factory.mktemp("recipes")
    return {
        name: pack("project.factory:build", folder / f"{name}.ptpkg", root=STORE / name) for name in NAMES
    }


def reference(name: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-P", ROOT / "scripts/reference.py", STORE / name],
        input=json.dumps(REQUESTS[name]),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    answers: list[dict[str, Any]] = json.loads(done.stdout)["answers"]
    return answers


def test_archives_answer_as_their_sources_do(packed: dict[str, PackReport], tmp_path: Path) -> None:
    (tmp_path / "requests.json").write_text(json.dumps(REQUESTS))
    archives = [packed[name].output for name in REQUESTS]
    answers = run_stock(FROM_ARCHIVES, tmp_path / "requests.json", *archives, cwd=tmp_path)
    for name in NAMES:
        for found, expected in zip(answers[name], reference(name), strict=True):
            assert found["label"] == expected["label"]
            assert found["scores"] == pytest.approx(expected["scores"], abs=1e-5)


def test_modules_of_the_same_names_are_interned_in_both(packed: dict[str, PackReport]) -> None:
    names = ["project", "project.labels", "project.model", "project.preprocessing"]
    sources = []
    for name in NAMES:
        assert packed[name].names("intern") == names
        with zipfile.ZipFile(packed[name].output) as file:
            sources.append([file.read(f"archive/project/{each}.py") for each in ("labels", "model")])
    assert all(one != other for one, other in zip(*sources, strict=True))
    assert packed["bert"].modules["transformers"]["action"] == "extern"


def test_stock_archiver_wraps_an_archive(packed: dict[str, PackReport], tmp_path: Path) -> None:
    handler = tmp_path / "handler.py"
    handler.write_text("def handle(data, context): ...\n")
    archiver = Path(sys.executable).with_name("torch-model-archiver")
    done = subprocess.run(
        [archiver, "--model-name", "convnet", "--version", "1.0", "--handler", handler,
         "--serialized-file", packed["convnet"].output, "--export-path", tmp_path],
        capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = inspect_archive(tmp_path / "convnet.mar")
    assert found.as_dict()["modules"] == packed["convnet"].modules
