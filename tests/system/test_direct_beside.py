"""The direct address beside TorchServe: what its managers do is true there at once, and its guards hold."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import guarded
import pytest
from local_server import JSON, Answer, TorchServe, free_ports
from system.comparison.archive import Archive
from system.comparison.building import build
from system.comparison.logs import said
from system.conftest import Mar, Pack
from waiting import wait_for


class Beside(TorchServe):
    """A TorchServe with a direct address."""

    def __init__(self, **properties: str) -> None:
        (port,) = free_ports(1)
        self.direct = f"http://127.0.0.1:{port}"
        address = {"INTERPOOL_DIRECT_ADDRESS": f"127.0.0.1:{port}"}
        super().__init__(
            environment={
                **address,
                "INTERPOOL_INTERPRETERS": "1",
                "INTERPOOL_ORDINARY_ARCHIVES": "pool",
                "INTERPOOL_DIRECT_ACCESS_LOG": "1",
            },
            properties=properties,
        )

    def ask(self, path: str, value: object = None, method: str = "POST") -> Answer:
        """An answer of the direct address; status 0 if there is none."""
        body = None if value is None else json.dumps(value).encode()
        try:
            return self.request(method, self.direct + path, body, JSON, timeout=60)
        except OSError as error:
            return Answer(0, str(error).encode(), {})

    def add(
        self,
        name: str,
        *,
        config: str = "",
        version: str = "1.0",
        folder: str = "front",
        **options: object,
    ) -> None:
        archive = Archive(name, "handler.py", [], [], folder=folder, config=config, version=version)
        build(archive, self.store)
        answer = self.register(f"{name}.mar", **{"initial_workers": 1, **options})
        assert answer.status == 200, answer.text

    def pooled(self, name: str, count: int) -> bool:
        """Whether so many workers of the direct address have the model."""
        pools = self.pools().values()
        found = [each for pool in pools for each in pool["beside"] if each["model"].startswith(f"{name}/")]
        return len(found) == count and all(each["started"] for each in found)


@pytest.fixture(scope="module")
def server() -> Iterator[Beside]:
    with Beside(max_request_size="100000", cors_allowed_origin="https://x.example") as running:
        wait_for(lambda: running.ask("/ping", method="GET").status == 200, "the direct address")
        yield running


@pytest.fixture
def front(server: Beside) -> Iterator[str]:
    """A model that the direct address serves."""
    server.add("front")
    wait_for(lambda: server.pooled("front", 1), "a worker beside TorchServe's")
    yield "front"
    assert server.unregister("front").status == 200


def _answered_by(server: Beside, path: str) -> bool:
    """Whether the pool answered it, and not TorchServe's frontend: by what only the frontend counts."""
    before = _counted(server)
    assert server.ask(path, {"n": 1}).status == 200
    return _counted(server) == before


def _counted(server: Beside) -> float:
    text = server.request("GET", f"{server.metrics}/metrics").text
    lines = [line for line in text.splitlines() if line.startswith("ts_inference_requests_total")]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def test_a_model_is_there_from_its_registration_to_its_end(server: Beside) -> None:
    assert server.ask("/predictions/life", {}).status == 404
    server.add("life")
    wait_for(lambda: server.pooled("life", 1), "a worker beside TorchServe's")
    assert server.ask("/predictions/life", {"n": 1}).json["wish"] == {"n": 1}
    assert _answered_by(server, "/predictions/life")
    assert server.scale("life", 3).status == 200
    wait_for(lambda: server.pooled("life", 3), "three of them")
    assert server.scale("life", 1).status == 200
    wait_for(lambda: server.pooled("life", 1), "one of them")
    assert server.ask("/predictions/life/1.0", {"n": 2}).status == 200
    assert server.ask("/predictions/life/7.7", {"n": 2}).status == 404
    assert server.unregister("life").status == 200
    wait_for(lambda: server.ask("/predictions/life", {}).status == 404, "the model's end")
    wait_for(lambda: server.pooled("life", 0), "no worker")


def test_answers_are_counted_and_logged(server: Beside) -> None:
    server.add("counted")
    wait_for(lambda: server.pooled("counted", 1), "a worker beside TorchServe's")
    for _ in range(3):
        assert server.ask("/predictions/counted?a=b", {"n": 1}).status == 200
    (pool,) = server.pools().values()
    assert f"http://{pool['direct']['address']}" == server.direct
    (traffic,) = (each for each in pool["direct"]["models"] if each["model"] == "counted/1.0")
    assert (traffic["answers"], traffic["waiting"], sum(traffic["times"])) == ({"200": 3}, 0, 3)
    assert server.host_log().count('"POST /predictions/counted?a=b HTTP/1.1" 200 ') == 3
    assert server.unregister("counted").status == 200


def test_metrics_of_handlers_reach_torchserve(server: Beside) -> None:
    server.add("measures", folder="talkative")
    wait_for(lambda: server.pooled("measures", 1), "a worker beside TorchServe's")
    assert server.ask("/predictions/measures", {"measure": 4}).status == 200
    wait_for(lambda: any("TookSeconds" in line for line in said(server, "measures").metrics), "its metrics")
    metrics = said(server, "measures").metrics
    assert any(line.startswith("Took.") for line in metrics)
    assert not any(line.startswith("PredictionTime.") for line in metrics)
    assert server.unregister("measures").status == 200


def test_requests_without_a_version_follow_the_default(server: Beside) -> None:
    server.add("turns")
    server.add("turns", version="2.0", batch_size=2, max_batch_delay=1)
    wait_for(lambda: server.pooled("turns", 2), "both versions")
    paths = [f"/predictions/turns{version}" for version in ("", "/1.0", "/2.0")]
    sizes = [server.ask(path, {}).json["batch size"] for path in paths]
    assert sizes == [1, 1, 2]
    assert server.request("PUT", f"{server.management}/models/turns/2.0/set-default").status == 200
    wait_for(lambda: server.ask("/predictions/turns", {}).json["batch size"] == 2, "the new default")
    assert server.unregister("turns/1.0").status == 200
    wait_for(lambda: server.ask("/predictions/turns/1.0", {}).status == 404, "the version's end")
    assert server.unregister("turns").status == 200


def test_requests_are_answered_while_versions_and_workers_come_and_go(server: Beside) -> None:
    server.add("busy", initial_workers=2)
    wait_for(lambda: server.pooled("busy", 2), "its workers")
    statuses: Counter[int] = Counter()
    end = threading.Event()

    def ask(number: int) -> None:
        while not end.is_set():
            answer = server.ask("/predictions/busy", {"n": number})
            statuses[answer.status] += 1
            assert answer.status, answer.text
            if answer.status == 200:
                assert answer.json["wish"] == {"n": number}

    with ThreadPoolExecutor(4) as threads:
        asking = [threads.submit(ask, number) for number in range(4)]
        try:
            for count in (4, 1, 3):
                assert server.scale("busy", count).status == 200
            wait_for(lambda: statuses[200] > 10, "answers")
            assert statuses.keys() == {200}
            assert server.unregister("busy").status == 200
            time.sleep(0.2)
        finally:
            end.set()
        for each in asking:
            each.result()
    assert statuses.keys() <= {200, 404, 500, 503}


def test_a_client_timeout_holds_as_torchserve_has_it_registered(server: Beside, tmp_path: Path) -> None:
    server.add("expiring", config="clientTimeoutInMills: 700\n")
    wait_for(lambda: server.pooled("expiring", 1), "its worker")
    until = tmp_path / "until"
    answer = server.ask("/predictions/expiring", {"until": str(until)})
    assert (answer.status, answer.json["type"]) == (408, "RequestTimeoutException")
    until.touch()
    wait_for(lambda: server.ask("/predictions/expiring", {"n": 1}).status == 200, "an answer")
    assert server.unregister("expiring").status == 200


def test_a_worker_whose_call_the_host_gave_up_serves_again(server: Beside, mar: Mar, packed: Pack) -> None:
    stuck = mar(server, "stuck", packed("stuck", "stuck"), config="interpool: {call_limit: 0.5}\n")
    assert server.register(stuck).status == 200
    wait_for(lambda: server.pooled("stuck", 1), "a worker beside TorchServe's")
    assert server.ask("/predictions/stuck", {"way": "sleep in C"}).status == 500
    wait_for(lambda: _answered_by(server, "/predictions/stuck"), "another worker", pause=0.1)
    assert server.unregister("stuck").status == 200


def test_requests_that_the_pool_cannot_answer_are_passed_on(server: Beside) -> None:
    server.add("elsewhere", config="interpool: {ordinary: stock}\n")
    assert server.pooled("elsewhere", 0)
    assert server.ask("/predictions/elsewhere", {"n": 5}).json["wish"] == {"n": 5}
    assert server.ask("/predictions/elsewhere", {"pieces": 3}).body.startswith(b"piece 0 piece 1 piece 2 ")
    assert server.ask("/ping", method="GET").json == {"status": "Healthy"}
    assert "/predictions/{model_name}" in server.ask("/", method="OPTIONS").json["paths"]
    assert server.ask("/predictions/nobody", {}).json["type"] == "ModelNotFoundException"
    assert server.ask("/models", method="GET").status == 404
    assert server.unregister("elsewhere").status == 200


def test_answers_come_in_pieces_and_the_servers_settings_hold(server: Beside, front: str) -> None:
    path = f"/predictions/{front}"
    address = urlsplit(server.direct)
    connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=60)
    connection.request("POST", path, b'{"pieces": 4}', {"Content-Type": JSON})
    answer = connection.getresponse()
    assert answer.chunked
    assert answer.read().startswith(b"piece 0 piece 1 piece 2 piece 3 {")
    connection.request("POST", path, b'{"pieces": 2, "raise": "no"}', {"Content-Type": JSON})
    with pytest.raises(http.client.IncompleteRead):
        connection.getresponse().read()
    connection.close()
    allowed = server.ask(path, {"n": 1}).headers["access-control-allow-origin"]
    assert allowed == "https://x.example"
    connection.putrequest("POST", path)
    connection.putheader("Content-Length", "100001")
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()


def test_a_killed_host_takes_the_address_along_and_the_next_one_has_it(server: Beside, front: str) -> None:
    (host,) = server.hosts()
    host.kill()
    wait_for(
        lambda: server.ask(f"/predictions/{front}", {"n": 1}).status == 200, "an answer of the next host"
    )
    wait_for(lambda: server.pooled(front, 1), "its worker in the next host")
    assert server.hosts() != [host]


class _Guarded(Beside):
    """The same with tokens, and with TorchServe's certificate at its inference address."""

    def __init__(self) -> None:
        super().__init__(disable_token_authorization="false")

    def __post_init__(self) -> None:
        super().__post_init__()
        _, self.certificate = guarded.certified(self.root)
        file = self.root / "config.properties"
        text = file.read_text().replace(self.inference, self.inference.replace("http:", "https:"))
        file.write_text(f"{text}private_key_file=key.pem\ncertificate_file=certificate.pem\n")

    def get(self, path: str) -> Answer:
        """Whether it is up, for the start."""
        try:
            answer = self.with_token("", "GET", self.inference.replace("http:", "https:") + path)
        except OSError as error:
            return Answer(0, str(error).encode(), {})
        return Answer(200 if answer.status == 400 else answer.status, answer.body, answer.headers)

    def token(self, kind: str) -> str:
        return guarded.token(self, kind)

    def with_token(self, token: str, method: str, url: str, body: bytes | None = None) -> Answer:
        return guarded.ask(method, url, token=token or None, body=body, certificate=self.certificate)


@pytest.mark.long
def test_the_servers_certificate_and_tokens_guard_the_address() -> None:
    with _Guarded() as server:
        direct = server.direct.replace("http:", "https:")

        def ask(token: str, model: str = "guarded") -> Answer:
            return server.with_token(token, "POST", f"{direct}/predictions/{model}", b'{"n": 1}')

        build(Archive("guarded", "handler.py", [], [], folder="front"), server.store)
        url = f"{server.management}/models?url=guarded.mar&initial_workers=1&synchronous=true"
        assert server.with_token(server.token("management"), "POST", url).status == 200
        wait_for(lambda: server.pooled("guarded", 1), "its worker")
        first = server.token("inference")
        assert ask(first).json["wish"] == {"n": 1}
        assert ask(first, "nobody").json["type"] == "ModelNotFoundException"  # passed on
        assert server.ask("/predictions/guarded", {}).status == 0  # without TLS
        for wrong in ("", "wrong", server.token("management")):
            refused = ask(wrong)
            assert (refused.status, refused.json["type"]) == (400, "InvalidKeyException")
        renewal = f"{server.management}/token?type=inference"
        assert server.with_token(server.token("API"), "GET", renewal).status == 200
        assert server.token("inference") != first
        assert (ask(first).status, ask(server.token("inference")).status) == (400, 200)
