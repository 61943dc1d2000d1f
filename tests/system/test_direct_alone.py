"""`interpool run`: every client gets its own answer, and bad or random input costs the others nothing."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from direct_server import DirectServer
from documents import blocks
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from local_server import INTERPOOL, free_ports
from many_examples import EXAMPLES
from paths import ROOT
from system.comparison.archive import Archive
from system.comparison.building import build
from waiting import wait_for

from interpool.handler.host.status import ask_hosts_below

MOST = 1_000_000
JSON = {"Content-Type": "application/json"}
BATCHED = "minWorkers: 2\nbatchSize: 8\nmaxBatchDelay: 20\n"
SLOW = "minWorkers: 1\nresponseTimeout: 2\njobQueueSize: 100\n"


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    store = tmp_path_factory.mktemp("store")
    return {
        "answers": build(Archive("answers", "handler.py", [], [], config="minWorkers: 2\n"), store),
        "batched": build(Archive("received", "handler.py", [], [], config=BATCHED), store),
        "slow": build(Archive("slow", "slow.py", [], [], folder="received", config=SLOW), store),
    }


@pytest.fixture(scope="module")
def server(archives: dict[str, Path]) -> Iterator[DirectServer]:
    named = (f"{name}={path}" for name, path in archives.items())
    with DirectServer(
        *named,
        options=(f"--max-request-size={MOST}", "--queue=4"),
        environment={"INTERPOOL_ORDINARY_ARCHIVES": "pool"},
    ) as running:
        yield running
        assert _post(running, "answers", {"answer": "int"}) == (200, b"7")
        running.process.terminate()
        assert running.process.wait(60) in (0, -15)
        assert list((running.root / "run").iterdir()) == []
        assert list((running.root / "tmp").iterdir()) == []


def _post(server: DirectServer, model: str, value: object) -> tuple[int, bytes]:
    answer = server.request("POST", f"/predictions/{model}", json.dumps(value).encode(), JSON)
    return answer.status, answer.body


def _interpreters(server: DirectServer) -> list[str]:
    """The states of its interpreters."""
    (pool,), _ = ask_hosts_below(server.root / "run")
    states = [one["state"] for one in pool["interpreters"]["interpreters"]]
    return [state for state in states if state != "retired"]


def _raw(server: DirectServer, data: bytes, *, end: bool = True) -> bytes:
    """What is answered to bytes, until the server closes the connection or is silent."""
    address = urlsplit(server.inference)
    with socket.create_connection((str(address.hostname), address.port), timeout=30) as connection:
        received = b""
        with contextlib.suppress(ConnectionError):
            connection.sendall(data)
            if end:
                connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(65536):
                received += part
        return received


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(min_size=1, max_size=40), min_size=1, max_size=24))
def test_each_of_many_clients_gets_its_own_answer_out_of_batches(
    server: DirectServer, tags: list[str]
) -> None:
    def ask(tag: str) -> object:
        status, body = _post(server, "batched", {"tag": tag})
        return json.loads(body)["fields"]["body"]["dict"]["tag"] if status == 200 else status

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(ask, tags))
    assert [answer for answer in answers if answer != 503] == [
        tag for tag, answer in zip(tags, answers, strict=True) if answer != 503
    ]
    assert answers.count(503) < len(answers)


def test_the_log_says_what_is_started_and_where_it_listens(server: DirectServer) -> None:
    started = server.log().index("starting a pool for answers, batched, slow (interpreters: 2)")
    assert started < server.log().index(f"listening at {server.inference}\n")


def test_requests_wait_for_the_others_of_their_batch(server: DirectServer) -> None:
    with ThreadPoolExecutor(4) as threads:
        counts = list(threads.map(lambda _: _post(server, "answers", {"answer": "count"}), range(4)))
    assert counts == [(200, b"1")] * 4


def test_a_call_that_takes_too_long_ends_its_worker_and_the_next_one_is_answered(
    server: DirectServer,
) -> None:
    status, body = _post(server, "slow", {"seconds": 30})
    assert (status, json.loads(body)["message"]) == (500, "Worker died.")
    wait_for(lambda: _post(server, "slow", {"seconds": 0}) == (200, b"slept"), "the next worker")


def test_a_body_beyond_the_limit_is_refused_before_it_is_read(server: DirectServer) -> None:
    head = b"POST /predictions/answers HTTP/1.1\r\nHost: x\r\n"
    declared = _raw(server, head + b"Content-Length: %d\r\n\r\n" % (MOST + 1), end=False)
    assert declared.startswith(b"HTTP/1.1 413")
    piece = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    chunked = head + b"Transfer-Encoding: chunked\r\n\r\n" + piece * (MOST // 0x10000 + 1)
    assert _raw(server, chunked, end=False).startswith(b"HTTP/1.1 413")


def test_a_body_as_large_as_the_limit_is_answered(server: DirectServer) -> None:
    body = json.dumps({"answer": "str", "pad": "x" * (MOST - 40)}).encode()
    assert server.request("POST", "/predictions/answers", body, JSON).status == 200
    assert _post(server, "answers", {"answer": "big"}) == (200, b"x" * 3_000_000)


def test_clients_that_leave_in_the_middle_disturb_no_others(server: DirectServer) -> None:
    address = urlsplit(server.inference)
    for data in (
        b"POST /predictions/answers HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nhalf",
        b"POST /predictions/answers HTTP/1.1\r\nHo",
        b"POST /predictions/slow HTTP/1.1\r\nHost: x\r\nContent-Length: 16\r\n\r\n" + b"x" * 16,
    ):
        for _ in range(4):
            with socket.create_connection((str(address.hostname), address.port), timeout=30) as connection:
                connection.sendall(data)
    wait_for(lambda: _post(server, "slow", {"seconds": 0}) == (200, b"slept"), "an answer")
    assert _post(server, "answers", {"answer": "int"}) == (200, b"7")
    assert "Exception in ASGI" not in server.log()


def test_a_thousand_idle_connections_cost_little_and_delay_no_client(server: DirectServer) -> None:
    address = urlsplit(server.inference)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    # One that starts, as a test above has ended one, takes as much memory as 5,000 connections.
    wait_for(lambda: _interpreters(server) == ["free"] * 2, "its interpreters")
    before = server.process.memory_info().rss
    where = str(address.hostname), address.port
    with contextlib.ExitStack() as idle:
        for _ in range(1000):
            idle.enter_context(socket.create_connection(where, timeout=30))
        assert _post(server, "answers", {"answer": "int"}) == (200, b"7")
        assert server.process.memory_info().rss - before < 50 << 20
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_open_inference_protocol_asks_for_readiness_and_metadata(server: DirectServer) -> None:
    def get(path: str) -> tuple[int, object]:
        answer = server.request("GET", path)
        return answer.status, answer.json

    assert get("/v2/health/live") == (200, {"live": True})
    assert get("/v2/health/ready")[0] == 200
    assert get("/v2/models/answers/ready") == (200, {"name": "answers", "ready": True})
    assert get("/v2/models/answers/versions/1.0/ready")[0] == 200
    status, metadata = get("/v2/models/answers")
    assert (status, metadata["name"], metadata["versions"]) == (200, "answers", ["1.0"])  # type: ignore[index]
    assert get("/v2/models/answers/versions/9")[0] == 404
    described = server.request("OPTIONS", "/predictions/answers").json
    assert "/predictions/answers" in described["paths"]
    assert server.request("OPTIONS", "/").json["openapi"] == "3.0.1"
    body = b'{"answer": "int"}'
    assert server.request("POST", "/v2/models/answers/versions/1.0/infer", body, JSON).body == b"7"


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
    "/predictions/batched",
    "/predictions/batched/1.0",
    "/explanations/batched",
    "/v1/models/batched:predict",
    "/v2/models/batched/infer",
    "/v2/models/batched",
    "/invocations",
    "/ping",
)


def test_no_request_of_its_own_document_makes_the_address_fail(server: DirectServer) -> None:
    # Here, as collecting the tests would import it into each process that runs some.
    import schemathesis
    from schemathesis.checks import not_a_server_error

    schema = schemathesis.openapi.from_dict(server.request("OPTIONS", "/").json)
    schema.config.update(base_url=server.inference)
    found = [each.ok() for each in schema.get_all_operations()]
    # Of the models, one that answers any request.
    operations = [each for each in found if "/predictions/" not in each.label or "/batched" in each.label]
    assert len(operations) == 4
    for operation in operations:

        @given(case=operation.as_strategy())
        @settings(max_examples=EXAMPLES // 4, deadline=None, suppress_health_check=[*HealthCheck])
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


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[*HealthCheck])
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


@pytest.mark.long
def test_a_server_that_is_ended_answers_what_it_was_asked(tmp_path: Path) -> None:
    archive = build(
        Archive("front", "handler.py", [], [], folder="front", config="minWorkers: 1\n"), tmp_path
    )
    started, until = tmp_path / "started", tmp_path / "until"
    wish = {"started": str(started), "until": str(until)}
    with (
        DirectServer(archive, environment={"INTERPOOL_ORDINARY_ARCHIVES": "pool"}) as running,
        ThreadPoolExecutor(1) as threads,
    ):
        asked = threads.submit(_post, running, "front", wish)
        wait_for(started.exists, "the call")
        running.process.terminate()
        address = urlsplit(running.inference)

        def takes_connections() -> bool:
            with contextlib.suppress(ConnectionError):
                socket.create_connection((str(address.hostname), address.port)).close()
                return True
            return False

        wait_for(lambda: not takes_connections(), "the server to end")
        time.sleep(12)  # longer than the server beside TorchServe would wait
        until.touch()
        status, body = asked.result()
    assert (status, json.loads(body)["wish"]) == (200, wish)


@pytest.mark.long
def test_a_server_that_is_interrupted_again_waits_for_no_answer(tmp_path: Path) -> None:
    archive = build(
        Archive("front", "handler.py", [], [], folder="front", config="minWorkers: 1\n"), tmp_path
    )
    started = tmp_path / "started"
    wish = {"started": str(started), "until": str(tmp_path / "until")}
    with (
        DirectServer(archive, environment={"INTERPOOL_ORDINARY_ARCHIVES": "pool"}) as running,
        ThreadPoolExecutor(1) as threads,
    ):
        threads.submit(_post, running, "front", wish)
        wait_for(started.exists, "the call")
        running.process.send_signal(signal.SIGINT)
        wait_for(lambda: "Waiting for connections to close" in running.log(), "the server to wait")
        running.process.send_signal(signal.SIGINT)
        running.process.wait(30)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing.mar"], "there is no archive nothing.mar"),
        (["pyproject.toml"], "is not an archive of TorchServe's"),
        (["a=x.mar", "a=y.mar"], "two archives are to be served as 'a'"),
    ],
)
def test_run_says_why_it_cannot_serve(arguments: list[str], said: str) -> None:
    done = subprocess.run(
        [*INTERPOOL, "run", *arguments, "--port=0"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 5
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_an_address_that_another_process_has_is_said_before_anything_is_loaded(
    archives: dict[str, Path],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        done = subprocess.run(
            [*INTERPOOL, "run", str(archives["answers"]), f"--port={other.getsockname()[1]}"],
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert done.returncode == 5
    assert "Address already in use. Name another one" in done.stderr
    assert "is served by" not in done.stderr


@pytest.mark.long
def test_the_application_of_the_documentation_serves_in_another_one(
    archives: dict[str, Path], tmp_path: Path
) -> None:
    shown = "\n".join(block.code for block in blocks(ROOT / "docs" / "direct.md"))
    source = shown.replace('"price.ptpkg"', repr(str(archives["answers"])))
    assert source != shown
    (tmp_path / "own_site.py").write_text(source)
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "uvicorn", "own_site:site", f"--port={port}", "--log-level=warning"]
    environment = {
        **os.environ,
        "INTERPOOL_INTERPRETERS": "1",
        "INTERPOOL_ORDINARY_ARCHIVES": "pool",
        "INTERPOOL_RUNTIME_DIR": str(tmp_path / "run"),
    }
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=log, stderr=log)
    url = f"http://127.0.0.1:{port}/models/predictions/price"
    asked = urllib.request.Request(url, b'{"answer": "int"}', JSON)

    def answers() -> bool:
        assert process.poll() is None, (tmp_path / "log").read_text()
        with contextlib.suppress(OSError), urllib.request.urlopen(asked, timeout=60) as answer:
            return bool(answer.read() == b"7")
        return False

    try:
        wait_for(answers, "an answer")
    finally:
        process.terminate()
        process.wait(60)
    assert list((tmp_path / "run").iterdir()) == []
