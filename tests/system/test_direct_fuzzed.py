"""The direct address under random requests, those of its own OpenAPI document among them."""

from __future__ import annotations

import contextlib
import http.client
from collections.abc import Iterator
from urllib.parse import quote, urlsplit

import pytest
import schemathesis
from direct_server import DirectServer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from system.comparison.archive import Archive
from system.comparison.building import build

NO_CHECKS = list(HealthCheck)
TYPES = (
    "application/json",
    "application/json; charset=utf-8",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "multipart/form-data",
    "application/octet-stream",
    "text/plain",
    "text/plain; charset=utf-16",
    "",
)
PATHS = (
    "/predictions/received",
    "/predictions/received/1.0",
    "/explanations/received",
    "/v1/models/received:predict",
    "/v2/models/received/infer",
    "/v2/models/received",
    "/invocations",
    "/ping",
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DirectServer]:
    store = tmp_path_factory.mktemp("store")
    archive = build(Archive("received", "handler.py", [], [], config="minWorkers: 2\n"), store)
    with DirectServer(archive, environment={"INTERPOOL_ORDINARY_ARCHIVES": "pool"}) as running:
        yield running


def test_no_request_of_its_own_document_makes_the_address_fail(server: DirectServer) -> None:
    schema = schemathesis.openapi.from_dict(server.request("OPTIONS", "/").json)
    schema.config.update(base_url=server.inference)
    operations = [each.ok() for each in schema.get_all_operations()]
    assert len(operations) == 4
    for operation in operations:

        @given(case=operation.as_strategy())
        @settings(max_examples=50, deadline=None, suppress_health_check=NO_CHECKS)
        def ask(case: schemathesis.Case) -> None:
            case.call_and_validate(checks=[not_a_server_error])

        ask()


FORM = st.lists(
    st.sampled_from([b"--x", b"--x--", b"\r\n", b"Content-Disposition: form-data; name=a", b":", b"b"])
)
BODIES = st.one_of(
    st.binary(max_size=300),
    st.sampled_from(
        [b"", b"{}", b"[1, 2", b'"\xff"', b"null", b"1e999", b"[" * 100_000, b"a=1&b=%zz", b"&&="]
    ),
    FORM.map(b"".join),
)


@settings(max_examples=300, deadline=None, suppress_health_check=NO_CHECKS)
@given(
    st.sampled_from(["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"]),
    st.one_of(st.sampled_from(PATHS), st.text(max_size=20).map(lambda text: f"/{quote(text)}")),
    st.one_of(st.just(""), st.text(max_size=20).map(lambda text: f"?{quote(text, safe='=&+')}")),
    st.sampled_from(TYPES),
    BODIES,
)
def test_no_request_makes_the_address_fail(
    server: DirectServer, method: str, path: str, query: str, kind: str, body: bytes
) -> None:
    headers = {"Content-Type": kind} if kind else {}
    connection = http.client.HTTPConnection(urlsplit(server.inference).netloc, timeout=60)
    with contextlib.closing(connection):
        connection.request(method, path + query, body, headers)
        answer = connection.getresponse()
        text = answer.read()
    assert answer.status < 500, text
