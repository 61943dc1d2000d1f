"""The sample models: packed by plan's first proposal, and answering as their sources do.

Two interpreters at once do, and so does an ordinary process with torch.package alone.
"""

from __future__ import annotations

import base64
import functools
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from test_archiver_ext.stock import run_stock
from test_model_store.recipes import (
    DATA,
    EXTERN,
    FEW,
    INTERNED,
    ROOT,
    SPEC,
    STORE,
    answer_from_archives,
    answer_from_source,
    build_operators,
)

from interpool.archiver_ext import PackReport, pack
from interpool.archiver_ext.inspect.inspection import inspect_archive
from interpool.archiver_ext.verify.verification import verify_archive

pytestmark = pytest.mark.long

REST = tuple(name for name in INTERNED if name not in FEW)
SLOW = ("bert", *REST)
SERVED = ("bert", "convnet")  # by the demo

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
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recipes")


Packed = Callable[[str], PackReport]


@pytest.fixture(scope="module")
def packed(folder: Path) -> Packed:
    """Packs a recipe, for the first test that needs it."""

    @functools.cache
    def one(name: str) -> PackReport:
        if name == "detector":
            build_operators()
        return pack(SPEC, folder / f"{name}.ptpkg", root=STORE / name)

    return one


# Dropout that draws numbers also when it answers, and a queue of what was seen last.
OTHERWISE_EACH_TIME = {"tacotron", "moco"}


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=[pytest.mark.long] if each in SLOW else []) for each in INTERNED]
)
def test_plans_first_proposal_holds(packed: Packed, name: str) -> None:
    report = packed(name)
    assert (report.attempts, report.corrections) == (1, [])
    said = ["its answers are random, or depend on earlier calls" in each for each in report.warnings]
    assert said == [True] * (name in OTHERWISE_EACH_TIME)
    assert {module.partition(".")[0] for module in report.names("intern")} == INTERNED[name]
    assert {each["module"] for each in report.externs} >= EXTERN.get(name, set())
    assert report.names("mock") == []
    assert report.inputs is not None, "without example inputs there is no self-test"
    assert list(report.plan.data) == DATA.get(name, [])
    assert report.size < 10_000_000


def tensors(answer: Any) -> Iterator[torch.Tensor]:
    """All in an answer."""
    if isinstance(answer, torch.Tensor):
        yield answer
    elif isinstance(answer, (list, dict)):
        for part in answer.values() if isinstance(answer, dict) else answer:
            yield from tensors(part)


@pytest.mark.parametrize(
    ("names", "one"),
    [(FEW, "tagger"), pytest.param(REST, "dlrm", marks=pytest.mark.long)],
    ids=["few", "rest"],
)
def test_two_interpreters_answer_at_once_as_the_sources_do(
    packed: Packed, names: tuple[str, ...], one: str, tmp_path: Path
) -> None:
    folders = {name: tmp_path / name for name in (*names, "wrong")}
    for each in folders.values():
        each.mkdir()
    wrong = folders.pop("wrong")
    archives = {name: packed(name).output for name in names}
    answer_from_source([(STORE / name, SPEC, folder) for name, folder in folders.items()])
    answer = torch.load(folders[one] / "answer.pt")
    next(tensors(answer["expected"])).view(-1)[1] += 1e-3
    torch.save(answer, wrong / "answer.pt")
    jobs = [(archives[name], folders[name]) for name in names]
    *found, differing = answer_from_archives([*jobs, (archives[one], wrong)])
    assert dict(zip(names, found, strict=True)) == {name: [[], []] for name in names}
    # Another answer would have been distinguished from the right one.
    assert ["Mismatched elements: 1 / " in line for lines in differing for line in lines] == [True, True]


THIRD_PARTY = STORE / "third_party"


@pytest.mark.parametrize("name", sorted(file.stem for file in THIRD_PARTY.glob("*.py")))
def test_a_model_of_an_installed_package_answers_as_its_source_does(name: str, tmp_path: Path) -> None:
    """Of a package that was not written for interpool, if it can be imported: see docs/models.md."""
    imported = [sys.executable, "-P", "-W", "ignore", "-c", f"import {name}"]
    done = subprocess.run(
        imported,
        cwd=THIRD_PARTY,
        env={**os.environ, "PYTHONPATH": str(THIRD_PARTY)},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    (folder := tmp_path / "stock").mkdir()
    answer_from_source([(THIRD_PARTY, f"{name}:build", folder)])
    report = pack(f"{name}:build", tmp_path / f"{name}.ptpkg", root=THIRD_PARTY)
    verify_archive(report.output)
    assert answer_from_archives([(report.output, folder)]) == [[[], []]]


def reference(name: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-P", ROOT / "scripts/reference.py", STORE / name],
        input=json.dumps(REQUESTS[name]),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    return answers


def test_archives_answer_as_their_sources_do_without_interpool(packed: Packed, tmp_path: Path) -> None:
    (tmp_path / "requests.json").write_text(json.dumps(REQUESTS))
    archives = [packed(name).output for name in REQUESTS]
    answers = run_stock(FROM_ARCHIVES, tmp_path / "requests.json", *archives, cwd=tmp_path)
    for name in SERVED:
        for found, expected in zip(answers[name], reference(name), strict=True):
            assert found["label"] == expected["label"]
            assert found["scores"] == pytest.approx(expected["scores"], abs=1e-5)


def test_modules_of_the_same_names_are_interned_in_both(packed: Packed) -> None:
    names = ["project", "project.labels", "project.model", "project.preprocessing"]
    sources = []
    for name in SERVED:
        assert packed(name).names("intern") == names
        with zipfile.ZipFile(packed(name).output) as file:
            sources.append([file.read(f"archive/project/{each}.py") for each in ("labels", "model")])
    assert all(one != other for one, other in zip(*sources, strict=True))
    assert packed("bert").modules["transformers"]["action"] == "extern"


def test_stock_archiver_wraps_an_archive(packed: Packed, tmp_path: Path) -> None:
    handler = tmp_path / "handler.py"
    handler.write_text("def handle(data, context): ...\n")
    archiver = Path(sys.executable).with_name("torch-model-archiver")
    done = subprocess.run(
        [archiver, "--model-name", "convnet", "--version", "1.0", "--handler", handler,
         "--serialized-file", packed("convnet").output, "--export-path", tmp_path],
        capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = inspect_archive(tmp_path / "convnet.mar")
    assert found.as_dict()["modules"] == packed("convnet").modules
