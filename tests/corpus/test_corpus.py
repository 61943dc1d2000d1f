"""Small repositories, each in a style that published models are written in, from folder to archive.

None was written for interpool. Each is packed by the commands of the documentation, with no edit beyond its
factory, ``export.py``; then its archive answers as its folder does.
"""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from local_server import TorchServe

from interpool.handler.cli import main

pytestmark = pytest.mark.long

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Repository:
    """One of the folders beside this file.

    Attributes:
        name: the folder's.
        path: directories below the folder that are on PYTHONPATH, as an editable install has them.
    """

    name: str
    path: tuple[str, ...] = ()

    @property
    def environment(self) -> dict[str, str]:
        return {"PYTHONPATH": os.pathsep.join(str(HERE / self.name / each) for each in self.path)}

    def __str__(self) -> str:
        return self.name


CORPUS = [
    Repository("benchmark_suite"),
    Repository("image_tagger"),
    Repository("two_stage_detector"),
    Repository("gan_by_options"),
    Repository("recommender"),
    Repository("generator_with_cache"),
    Repository("targets_by_name"),
    Repository("plugin_by_entry_point", path=("plugin",)),
]

# What the folder itself answers, as JSON.
ANSWER = """
import json, sys
sys.path.insert(0, ".")
sys.argv = ["export:build"]
import export, torch
from interpool.archiver_ext.verify.self_test import Sample, plain
model, sample = export.build(), Sample.of(export.example_inputs())
model.eval()
answer = plain(model(*sample.args, **sample.kwargs))
def as_json(value):
    return value.tolist() if isinstance(value, torch.Tensor) else str(value)
print(json.dumps(answer, default=as_json))
"""


Pack = Callable[[Repository], tuple[Path, dict[str, Any]]]


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Pack:
    """Packs a repository, once; gives its archive, and what ``pack --json`` says of it."""
    folder = tmp_path_factory.mktemp("corpus")

    @functools.cache
    def pack(repository: Repository) -> tuple[Path, dict[str, Any]]:
        archive = folder / f"{repository.name}.ptpkg"
        command = ["pack", "export:build", "-o", str(archive), "--json"]
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(HERE / repository.name)
            for name, value in repository.environment.items():
                patch.setenv(name, value)
            done = CliRunner().invoke(main, command)
        assert done.exit_code == 0, done.output
        return archive, json.loads(done.stdout)

    return pack


def from_folder(repository: Repository) -> Any:
    """What it answers its example inputs where it lies."""
    done = subprocess.run(
        [sys.executable, "-c", ANSWER],
        cwd=HERE / repository.name,
        env={**os.environ, **repository.environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def assert_same(found: Any, expected: Any) -> None:
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            assert_same(found[name], value)
    elif isinstance(expected, list) and any(isinstance(each, dict) for each in expected):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    else:
        torch.testing.assert_close(torch.as_tensor(found), torch.tensor(expected), check_dtype=False)


@pytest.mark.parametrize("repository", CORPUS, ids=str)
def test_a_repository_is_packed_as_it_is(repository: Repository, packed: Pack) -> None:
    _, report = packed(repository)
    assert (report["attempts"], report["corrections"]) == (1, []), "right at the first attempt"


@pytest.fixture(scope="module")
def server() -> Iterator[TorchServe]:
    with TorchServe(environment={"INTERPOOL_INTERPRETERS": "2"}) as running:
        yield running


def part_of(answer: Any, part: int | None) -> Any:
    """Of the answer to the example inputs, what a request for that part of them is answered."""
    if part is None:
        return answer
    return {name: rows[part] for name, rows in answer.items()} if isinstance(answer, dict) else answer[part]


def printed(command: str, environment: dict[str, str]) -> str:
    done = subprocess.run(command, shell=True, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("repository", CORPUS, ids=str)
def test_the_line_that_archive_prints_is_answered_over_http_as_the_repository_answers_in_its_folder(
    repository: Repository, server: TorchServe, packed: Pack
) -> None:
    archive, report = packed(repository)
    environment = {**os.environ, **server.own_environment}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    command = f"interpool archive {archive} --model-name {repository.name} --export-path {server.store}"
    said = printed(command, environment)
    register, ask = re.findall(r"^  (.*curl .*)$", said, flags=re.MULTILINE)
    assert server.management in register
    assert server.inference in ask
    printed(register, environment)
    answer = json.loads(printed(ask, environment))
    assert_same(answer, part_of(from_folder(repository), report["request"]["part"]))
    assert server.unregister(repository.name).status == 200
