"""Small repositories, each in a style that published models are written in, from folder to archive.

Nobody wrote them for interpool. Each is packed by the commands of the documentation, with no edit beyond its
factory, ``export.py``; then its archive answers as its folder does.
"""

from __future__ import annotations

import functools
import json
import os
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

from interpool.archiver_ext.commands.showing import request_of
from interpool.handler.cli import main
from interpool.native import InterpreterManager

pytestmark = pytest.mark.long

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Repository:
    """One of the folders beside this file.

    Attributes:
        name: the folder's.
        options: what ``pack`` has to be told.
        path: directories below the folder that are on PYTHONPATH, as an editable install has them.
    """

    name: str
    options: tuple[str, ...] = ()
    path: tuple[str, ...] = ()

    @property
    def environment(self) -> dict[str, str]:
        return {"PYTHONPATH": os.pathsep.join(str(HERE / self.name / each) for each in self.path)}

    def __str__(self) -> str:
        return self.name


CORPUS = [
    Repository("benchmark_suite"),
    Repository("editable_library", path=("library/src",)),
    Repository("needs_a_folder", options=("--data", "reader/vocabulary/")),
    Repository("image_tagger"),
    Repository("batchnorm_left_training"),
    Repository("two_stage_detector"),
    Repository("gan_by_options"),
    Repository("maml", options=("--grad",)),
    Repository("recommender"),
    Repository("generator_with_cache"),
    Repository("registry_by_glob"),
    Repository("targets_by_name"),
    Repository("plugin_by_entry_point", path=("plugin",)),
]
BY_NAME = {each.name: each for each in CORPUS}
FAST = CORPUS[:2]

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
print(json.dumps([[*sample.args], sample.kwargs, answer], default=as_json))
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
            done = CliRunner().invoke(main, [*command, *repository.options])
        assert done.exit_code == 0, done.output
        return archive, json.loads(done.stdout)

    return pack


def from_folder(repository: Repository) -> tuple[list[Any], dict[str, Any], Any]:
    """Its example inputs, and what it answers them where it lies."""
    done = subprocess.run(
        [sys.executable, "-c", ANSWER],
        cwd=HERE / repository.name,
        env={**os.environ, **repository.environment},
        capture_output=True,
        text=True,
        check=True,
    )
    args, kwargs, answer = json.loads(done.stdout)
    return args, kwargs, answer


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


@pytest.fixture(scope="module")
def pool() -> Iterator[InterpreterManager]:
    with InterpreterManager(1) as manager:
        yield manager


@pytest.mark.parametrize("repository", FAST, ids=str)
def test_a_repository_is_packed_as_it_is_and_answers_from_its_archive(
    repository: Repository, pool: InterpreterManager, packed: Pack
) -> None:
    archive, report = packed(repository)
    assert (report["attempts"], report["corrections"]) == (1, []), "right at the first attempt"
    args, kwargs, expected = from_folder(repository)
    model = pool.load_package(archive).load_entry()
    assert not kwargs
    assert_same(model(*map(torch.tensor, args)), expected)


@pytest.mark.parametrize("repository", CORPUS[len(FAST) :], ids=str)
def test_every_other_repository_is_packed_as_it_is(repository: Repository, packed: Pack) -> None:
    _, report = packed(repository)
    assert (report["attempts"], report["corrections"]) == (1, [])


@pytest.fixture(scope="module")
def server() -> Iterator[TorchServe]:
    with TorchServe(environment={"INTERPOOL_INTERPRETERS": "2"}) as running:
        yield running


def part_of(answer: Any, part: int | None) -> Any:
    """Of the answer to the example inputs, what a request for that part of them is answered."""
    if part is None:
        return answer
    return {name: rows[part] for name, rows in answer.items()} if isinstance(answer, dict) else answer[part]


@pytest.mark.parametrize("repository", CORPUS, ids=str)
def test_a_repository_answers_the_request_that_pack_found_over_http_as_it_does_in_its_folder(
    repository: Repository, server: TorchServe, packed: Pack
) -> None:
    archive, report = packed(repository)
    made = ["archive", str(archive), "--model-name", repository.name, "--export-path", str(server.store)]
    done = CliRunner().invoke(main, made)
    assert done.exit_code == 0, done.output
    registered = server.register(f"{repository.name}.mar")
    assert registered.status == 200, server.model_log()[-3000:]
    content_type, body = request_of(archive)
    answer = server.post(repository.name, body, content_type)
    assert answer.status == 200, answer.text
    *_, expected = from_folder(repository)
    assert_same(answer.json, part_of(expected, report["request"]["part"]))
    assert server.unregister(repository.name).status == 200
