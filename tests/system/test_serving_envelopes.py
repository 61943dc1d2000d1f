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


def test_version_one_stacks_the_instances_of_a_module(kserve: TorchServe) -> None:
    body = {"instances": [[1, 1, 1.0], [1, 0, 0]]}
    for path in ("/v1/models/linear:predict", "/predictions/linear"):
        assert _ask(kserve, path, body) == {"predictions": [[3.0, 12.0], [0.0, 3.0]]}


def test_version_one_calls_a_callable_for_each_instance(kserve: TorchServe) -> None:
    answer = _ask(kserve, "/v1/models/echo:predict", {"instances": ["a", {"k": "b"}]})
    assert answer == {
        "predictions": [{"positional": ["'a'"], "named": {}}, {"positional": [], "named": {"k": "'b'"}}]
    }


def test_version_one_wraps_a_handler_as_torchserve_does(kserve: TorchServe) -> None:
    answer = _ask(kserve, "/v1/models/inside:predict", {"instances": [{"body": {}}]})
    assert answer["predictions"][0]["model"] == "inside"


@pytest.mark.parametrize("path", ["/v1/models/linear:explain", "/explanations/linear"])
def test_explanations_that_a_model_has_not_are_refused(kserve: TorchServe, path: str) -> None:
    answer = _post(kserve, path, {"instances": [[1, 1, 1.0]]})
    assert answer.status == 501, answer.text
    assert "Model 'linear' has no explanations" in answer.text


def test_what_is_not_in_the_form_is_a_bad_request(kserve: TorchServe, kservev2: TorchServe) -> None:
    for server, path in ((kserve, "/v1/models/linear:predict"), (kservev2, "/v2/models/linear/infer")):
        answer = _post(server, path, {"x": 1})
        assert answer.status == 400, answer.text
        assert "this model's envelope takes" in answer.json["message"]


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


def test_version_two_gives_a_callable_tensors_and_strings(kservev2: TorchServe) -> None:
    inputs = [
        {"name": "text", "shape": [1], "datatype": "BYTES", "data": ["hello"]},
        {"name": "n", "shape": [1], "datatype": "INT64", "data": [7]},
    ]
    answer = _ask(kservev2, "/v2/models/echo/infer", {"inputs": inputs})
    positional, named = answer["outputs"]
    assert (positional["name"], named["name"]) == ("positional", "named")
    assert json.loads(named["data"][0]) == {"text": "'hello'", "n": "tensor([7])"}


def test_version_two_has_explanations_refused(kservev2: TorchServe) -> None:
    answer = _post(kservev2, "/v2/models/linear/explain", {"inputs": []})
    assert answer.status == 501, answer.text


@pytest.mark.long
def test_json_is_tensorflows_form(json_server: TorchServe) -> None:
    assert _ask(json_server, "/predictions/linear", {"instances": [[1, 1, 1.0]]}) == {
        "predictions": [[3.0, 12.0]]
    }
    answer = _ask(json_server, "/predictions/inside", {"instances": [{"body": {}}, {"body": {}}]})
    assert [each["batch"] for each in answer["predictions"]] == [2, 2]
