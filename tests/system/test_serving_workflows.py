"""Modules are served where TorchServe passes no content type on: in workflows and over gRPC."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from local_server import JSON, TorchServe
from system.comparison.front import write_workflow
from system.comparison.grpc_client import Client

Mar = Callable[..., str]


@pytest.fixture(scope="module")
def linear(server: TorchServe, mar: Mar) -> str:
    """A module of three numbers to two, registered as ``linear``; its archive's name."""
    archive = mar(server, "linear", "linear")
    assert server.register(archive).status == 200
    return archive


def test_a_module_gets_the_answer_of_the_module_before_it_in_a_workflow(
    server: TorchServe, mar: Mar, linear: str
) -> None:
    archives = {"first": linear, "second": mar(server, "doubles", "doubles")}
    workflow = write_workflow("flow", archives, {"first": ["second"]}, server.store)
    url = f"{server.management}/workflows"
    registered = server.request("POST", url, url=workflow)
    assert registered.status == 200, registered.text
    answer = server.request("POST", f"{server.inference}/wfpredict/flow", b"[1.0, 2.0, 3.0]", JSON)
    assert (answer.status, answer.json) == (200, [16.0, 52.0])
    assert server.request("DELETE", f"{url}/flow").status == 200


def test_a_module_takes_json_over_grpc(server: TorchServe, linear: str) -> None:
    client = Client(server)
    try:
        assert client.predict("linear", data=b"[1.0, 2.0, 3.0]") == b"[8.0, 26.0]"
        assert client.predict("linear", body=b"[1.0, 2.0, 3.0]") == b"[8.0, 26.0]"
    finally:
        client.close()
