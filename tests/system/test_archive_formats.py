"""Both roads to a .mar, in all formats that TorchServe takes, on one real TorchServe."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from local_server import INTERPOOL, TorchServe
from system.comparison.weights import wheel
from system.conftest import HERE, Pack
from test_archiver_ext.stock import run_stock

from interpool.archiver_ext.mar.making import FORMATS

pytestmark = pytest.mark.long

ROWS = [[1.0, -2.0, 0.5], [0.0, 0.0, 3.0]]
CONFIG = "batchSize: 2\nmaxBatchDelay: 50\nhandler:\n  scale: 2.5\ninterpool:\n  tracebacks: true\n"

# The unpackaged model, in a process that has nothing of interpool's.
FROM_SOURCE = """
from types import SimpleNamespace
sys.path.insert(0, sys.argv[1])
from labelled import labelled
model = labelled()
model.initialize(SimpleNamespace(
    system_properties={"model_dir": sys.argv[2]},
    model_yaml_config={"handler": {"scale": 2.5}},
    manifest={"model": {"modelVersion": None}},
))
rows = [{"body": row} for row in json.loads(sys.argv[3])]
print(json.dumps(model.handle(rows, None)))
"""


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that go into the .mar with the model."""
    folder = tmp_path_factory.mktemp("beside")
    (folder / "extra/deep").mkdir(parents=True)
    (folder / "extra/labels.txt").write_text("cat dog")
    (folder / "extra/deep/more.json").write_text('{"more": "was read"}')
    (folder / "model-config.yaml").write_text(CONFIG)
    return folder


@pytest.fixture(scope="module")
def expected(beside: Path) -> list[dict[str, Any]]:
    answers = run_stock(FROM_SOURCE, HERE, beside / "extra", json.dumps(ROWS), cwd=beside)
    assert {answer["label"] for answer in answers} <= {"cat", "dog"}
    return answers  # type: ignore[no-any-return]


def run(*command: str | Path) -> str:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("archive_format", FORMATS)
def test_archives_of_interpool_and_of_the_stock_archiver_answer_as_the_unpacked_model(
    server: TorchServe, packed: Pack, beside: Path, expected: list[dict[str, Any]], archive_format: str
) -> None:
    package = packed("labelled", "labelled")
    flags: list[str | Path] = ["--archive-format", archive_format, "--export-path", server.store]
    flags += ["--extra-files", beside / "extra", "--config-file", beside / "model-config.yaml"]
    name = f"labelled-{archive_format}"
    made = run(*INTERPOOL, "archive", package, "--model-name", f"{name}-one", *flags, "--json")
    url = json.loads(made)["url"]
    stock = Path(sys.executable).with_name("torch-model-archiver")
    handler = run(*INTERPOOL, "handler").strip()
    flags += ["--version", "2.0", "--serialized-file", package, "--handler", handler]
    run(stock, "--model-name", f"{name}-two", *flags)
    for each in (url, url.replace("-one", "-two")):
        answer = server.register(each, model_name=name)
        assert answer.status == 200, f"{answer.text}\n{server.model_log()[-3000:]}"
    (first,) = server.describe(f"{name}/1.0")
    assert (first["modelVersion"], first["batchSize"], first["modelUrl"]) == ("1.0", 2, url)
    for path, version in ((name, "1.0"), (f"{name}/1.0", "1.0"), (f"{name}/2.0", "2.0")):
        for row, wanted in zip(ROWS, expected, strict=True):
            answer = server.predict(path, row)
            assert answer.status == 200, answer.text
            got = answer.json
            assert got["scores"] == pytest.approx(wanted["scores"], abs=1e-6)
            assert {**got, "scores": []} == {**wanted, "scores": [], "version": version}
    assert len(server.hosts()) == 1
    for version in ("2.0", "1.0"):
        assert server.unregister(f"{name}/{version}").status == 200


def test_a_models_requirements_are_installed_and_found(
    server: TorchServe, packed: Pack, beside: Path, expected: list[dict[str, Any]]
) -> None:
    wheel(beside)
    (beside / "requirements.txt").write_text(f"{beside / 'tiny_dependency-1.0-py3-none-any.whl'}\n")
    (beside / "tool.yaml").write_text("handler:\n  scale: 2.5\n  tool: tiny_dependency\n")
    run(
        *INTERPOOL, "archive", packed("labelled", "labelled"), "--export-path", server.store,
        "--extra-files", beside / "extra", "-r", beside / "requirements.txt", "-c", beside / "tool.yaml",
    )  # fmt: skip
    answer = server.register("labelled.mar")
    assert answer.status == 200, f"{answer.text}\n{server.model_log()[-3000:]}"
    answer = server.predict("labelled", ROWS[0])
    assert answer.json["tool"] == "installed for one model", answer.text
    assert answer.json["label"] == expected[0]["label"]
    assert server.unregister("labelled").status == 200
