"""What the direct address says of a packed model's requests."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from interpool.archiver_ext import pack
from interpool.handler.direct.descriptions import metadata, model_api
from interpool.handler.direct.examples import Examples
from interpool.handler.direct.models import Models, ModelVersion
from interpool.handler.direct.queue import ModelQueue, QueueSettings

SOURCE = """
import torch

def build():
    return torch.nn.Linear(3, 2)

def build_inputs():
    return torch.arange(6.0).reshape(2, 3)

def pair():
    return Pair()

def pair_inputs():
    return torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64)

class Pair(torch.nn.Module):
    def forward(self, x, index):
        return x.sum(1) + index
"""


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    (root / "net.py").write_text(SOURCE)
    found = {}
    for entry in ("build", "pair"):
        folder = root / f"{entry}.mar"
        folder.mkdir()
        pack(f"net:{entry}", root=root, output=folder / "m.ptpkg", inputs=f"net:{entry}_inputs")
        found[entry] = folder
    return found


def _examples(directory: Path) -> Examples:
    return Examples.of_directory(directory, {"serializedFile": "m.ptpkg"})


def _model(examples: Examples) -> ModelVersion:
    async def made() -> ModelVersion:
        return ModelVersion("m", "1.0", ModelQueue(QueueSettings()), examples)

    return asyncio.run(made())


def _request(examples: Examples) -> Any:
    paths = model_api(_model(examples))["paths"]
    return paths["/predictions/m"]["post"]["requestBody"]["content"]


@pytest.mark.long
def test_metadata_has_a_packed_models_inputs_and_its_document_a_request(packed: dict[str, Path]) -> None:
    examples = _examples(packed["build"])
    models = Models()
    models.add(_model(examples))
    described = metadata(_model(examples), models)
    assert described["inputs"] == [{"name": "input-0", "datatype": "FP32", "shape": [-1, 3]}]
    assert _request(examples)["application/json"]["example"] == [0.0, 1.0, 2.0]


def test_positional_inputs_are_left_out_if_a_client_would_have_to_name_them(packed: dict[str, Path]) -> None:
    assert _examples(packed["pair"]).inputs == []


@pytest.mark.parametrize("content", [None, b"no archive"])
def test_nothing_is_said_of_a_directory_without_a_packed_model_that_can_be_read(
    tmp_path: Path, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "m.ptpkg").write_bytes(content)
    examples = _examples(tmp_path)
    assert (examples.inputs, list(_request(examples))) == ([], ["*/*"])
