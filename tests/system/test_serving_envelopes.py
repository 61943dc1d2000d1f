"""Packed modules and callables behind TorchServe's request envelopes, over its KServe routes."""

from __future__ import annotations

import contextlib
import http.client
import json
import struct
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from local_server import JSON, Answer, TorchServe, free_ports, torchserve
from system.conftest import Mar
from waiting import wait_for

from interpool.handler.backend.binary_tensors import LENGTH_HEADER


def _serve(envelope: str, mar: Mar, *models: str, direct: str = "") -> Iterator[TorchServe]:
    environment = {"INTERPOOL_DIRECT_ADDRESS": direct, "INTERPOOL_INTERPRETERS": "1"}
    with torchserve(properties={"service_envelope": envelope}, environment=environment) as server:
        for name in models:
            answer = server.register(mar(server, name, name))
            assert answer.status == 200, f"{answer.text}\n{server.model_log()[-5000:]}"
        yield server


@pytest.fixture(scope="module")
def kserve(mar: Mar) -> Iterator[TorchServe]:
    yield from _serve("kserve", mar, "linear", "inside")


@pytest.fixture(scope="module")
def kservev2(mar: Mar) -> Iterator[TorchServe]:
    (port,) = free_ports(1)
    yield from _serve("kservev2", mar, "linear", direct=f"127.0.0.1:{port}")


@pytest.fixture(scope="module")
def json_server(mar: Mar) -> Iterator[TorchServe]:
    yield from _serve("json", mar, "linear", "inside")


def _post(server: TorchServe, path: str, body: Any) -> Answer:
    return server.request("POST", server.inference + path, json.dumps(body).encode(), JSON)


def _ask(server: TorchServe, path: str, body: Any) -> Any:
    answer = _post(server, path, body)
    assert answer.status == 200, answer.text
    return answer.json


@pytest.mark.long
def test_version_one_wraps_a_handler_as_torchserve_does(kserve: TorchServe) -> None:
    answer = _ask(kserve, "/v1/models/inside:predict", {"instances": [{"body": {}}]})
    assert answer["predictions"][0]["model"] == "inside"
    (described,) = kserve.describe("linear", customized=True)
    assert set(described["customizedMetadata"]) == {"entry", "made_with", "externs"}


def test_version_two_takes_and_gives_tensors_and_describes_the_model(kservev2: TorchServe) -> None:
    (described,) = kservev2.describe("linear", customized=True)
    assert set(described["customizedMetadata"]) == {"entry", "made_with", "externs"}
    tensor = {"name": "x", "shape": [2, 3], "datatype": "FP32", "data": [1, 1, 1, 1, 0, 0]}
    answer = _ask(kservev2, "/v2/models/linear/infer", {"id": "one", "inputs": [tensor]})
    assert answer == {
        "id": "one",
        "model_name": "linear",
        "model_version": "1.0",
        "outputs": [{"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [3.0, 12.0, 0.0, 3.0]}],
    }


def _ask_in_binary(address: str, elements: bytes) -> tuple[int, Any, bytes]:
    """The status of an answer, its JSON, and what lies behind that."""
    inputs = [
        {"name": "x", "shape": [2, 3], "datatype": "FP32", "parameters": {"binary_data_size": len(elements)}}
    ]
    head = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    headers = {"Content-Type": "application/octet-stream", LENGTH_HEADER: str(len(head))}
    connection = http.client.HTTPConnection(address, timeout=60)
    with contextlib.closing(connection):
        connection.request("POST", "/v2/models/linear/infer", head + elements, headers)
        answer = connection.getresponse()
        body = answer.read()
        length = int(answer.headers.get(LENGTH_HEADER, len(body)))
        return answer.status, json.loads(body[:length]), body[length:]


def test_version_two_takes_and_gives_elements_behind_the_json_at_both_addresses(kservev2: TorchServe) -> None:
    direct = kservev2.environment["INTERPOOL_DIRECT_ADDRESS"]
    wait_for(lambda: any(pool["beside"] for pool in kservev2.pools().values()), "the direct address")
    for address in (urlsplit(kservev2.inference).netloc, direct):
        elements = struct.pack("<6f", 1, 1, 1, 1, 0, 0)
        status, content, answered = _ask_in_binary(address, elements)
        assert status == 200, content
        assert struct.unpack("<4f", answered) == (3.0, 12.0, 0.0, 3.0)
        (output,) = content["outputs"]
        assert output == {
            "name": "x",
            "shape": [2, 2],
            "datatype": "FP32",
            "parameters": {"binary_data_size": 16},
        }
        status, content, _ = _ask_in_binary(address, elements[:-1])
        assert status == 400
        assert "takes 24 bytes" in content["message"]


@pytest.mark.long
def test_json_is_tensorflows_form(json_server: TorchServe) -> None:
    assert _ask(json_server, "/predictions/linear", {"instances": [[1, 1, 1.0]]}) == {
        "predictions": [[3.0, 12.0]]
    }
    answer = _ask(json_server, "/predictions/inside", {"instances": [{"body": {}}, {"body": {}}]})
    assert [each["batch"] for each in answer["predictions"]] == [2, 2]
