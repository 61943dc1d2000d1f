"""Packed modules and callables behind TorchServe's request envelopes, over its KServe routes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from local_server import JSON, Answer, TorchServe, torchserve
from system.conftest import Mar

MODELS = {"linear": "linear", "echo": "make_echo", "inside": "inside"}


def _serve(envelope: str, mar: Mar) -> Iterator[TorchServe]:
    with torchserve(properties={"service_envelope": envelope}) as server:
        for name, spec in MODELS.items():
            answer = server.register(mar(server, name, spec))
            assert answer.status == 200, f"{answer.text}\n{server.model_log()[-5000:]}"
        yield server


@pytest.fixture(scope="module")
def kserve(mar: Mar) -> Iterator[TorchServe]:
    yield from _serve("kserve", mar)


@pytest.fixture(scope="module")
def kservev2(mar: Mar) -> Iterator[TorchServe]:
    yield from _serve("kservev2", mar)


@pytest.fixture(scope="module")
def json_server(mar: Mar) -> Iterator[TorchServe]:
    yield from _serve("json", mar)


def _post(server: TorchServe, path: str, body: Any) -> Answer:
    return server.request("POST", server.inference + path, json.dumps(body).encode(), JSON)


def _ask(server: TorchServe, path: str, body: Any) -> Any:
    answer = _post(server, path, body)
    assert answer.status == 200, answer.text
    return answer.json


def test_version_one_wraps_a_handler_as_torchserve_does(kserve: TorchServe) -> None:
    answer = _ask(kserve, "/v1/models/inside:predict", {"instances": [{"body": {}}]})
    assert answer["predictions"][0]["model"] == "inside"


def test_a_model_describes_itself_behind_every_envelope(kserve: TorchServe, kservev2: TorchServe) -> None:
    for server in (kserve, kservev2):
        (described,) = server.describe("linear", customized=True)
        assert set(described["customizedMetadata"]) == {"entry", "made_with", "externs"}


def test_version_two_takes_and_gives_tensors(kservev2: TorchServe) -> None:
    tensor = {"name": "x", "shape": [2, 3], "datatype": "FP32", "data": [1, 1, 1, 1, 0, 0]}
    answer = _ask(kservev2, "/v2/models/linear/infer", {"id": "one", "inputs": [tensor]})
    assert answer == {
        "id": "one",
        "model_name": "linear",
        "model_version": "1.0",
        "outputs": [{"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [3.0, 12.0, 0.0, 3.0]}],
    }


@pytest.mark.long
def test_json_is_tensorflows_form(json_server: TorchServe) -> None:
    assert _ask(json_server, "/predictions/linear", {"instances": [[1, 1, 1.0]]}) == {
        "predictions": [[3.0, 12.0]]
    }
    answer = _ask(json_server, "/predictions/inside", {"instances": [{"body": {}}, {"body": {}}]})
    assert [each["batch"] for each in answer["predictions"]] == [2, 2]
