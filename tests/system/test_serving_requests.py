"""The request that packing found: its command line, as it was printed, at a server."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from local_server import INTERPOOL, TorchServe

from interpool.archiver_ext import pack

pytestmark = pytest.mark.long

FACTORY = """
import torch
from torch import nn


class Picture(nn.Module):
    def forward(self, x):
        assert x.shape[1:] == (3, 64, 96), x.shape
        return x.mean((2, 3))


class Bags(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.EmbeddingBag.from_pretrained(torch.eye(4), mode="sum")

    def forward(self, indices, offsets):
        return self.table(indices, offsets)


def picture():
    return torch.full((1, 3, 64, 96), 0.5)


def bags():
    return torch.tensor([1, 2, 3]), torch.tensor([0, 2])
"""
ANSWERS = {
    "Picture": [0.5, 0.5, 0.5],
    "Bags": [[0, 1, 1, 0], [0, 0, 0, 1]],
}


@pytest.mark.parametrize("model", ANSWERS)
def test_the_line_that_archive_prints_is_answered(server: TorchServe, tmp_path: Path, model: str) -> None:
    (tmp_path / "export.py").write_text(FACTORY)
    package = tmp_path / f"{model}.ptpkg"
    pack(f"export:{model}", package, root=tmp_path, inputs=f"export:{model.lower()}")

    environment = {**os.environ, **server.own_environment}
    command = [*INTERPOOL, "archive", str(package), "--export-path", str(server.store)]
    said = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    register, ask = re.findall(r"^  (.*curl .*)$", said, flags=re.MULTILINE)
    assert server.management in register
    assert server.inference in ask
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    subprocess.run(register, shell=True, env=environment, check=True, capture_output=True)
    answer = subprocess.run(ask, shell=True, env=environment, check=True, capture_output=True).stdout
    assert json.loads(answer) == ANSWERS[model]
    assert server.unregister(model).status == 200
