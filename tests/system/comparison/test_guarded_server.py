"""A server with TLS, tokens, tcp sockets, and settings from the environment."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import guarded
import pytest
from local_server import Answer, TorchServe
from system.comparison import front
from system.comparison.front import Way
from system.comparison.scenes import Story
from system.comparison.servers import Pair, pair
from waiting import wait_for

pytestmark = pytest.mark.long  # two servers of its own


class _Guarded(TorchServe):
    """Inference and management over TLS."""

    def __post_init__(self) -> None:
        super().__post_init__()
        file = self.root / "config.properties"
        text = file.read_text()
        for address in (self.inference, self.management):
            text = text.replace(address, address.replace("http:", "https:"))
        file.write_text(text)
        self.inference, self.management = (
            address.replace("http:", "https:") for address in (self.inference, self.management)
        )

    def get(self, path: str) -> Answer:
        """Whether it is up: it answers, if only that a token is missing."""
        try:
            return Answer(200, str(_ask(self, "GET", self.inference + path, None)).encode(), {})
        except OSError as error:
            return Answer(0, str(error).encode(), {})


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    key, certificate = guarded.certified(tmp_path_factory.mktemp("tls"))
    properties = {
        "disable_token_authorization": "false",
        "enable_model_api": "false",
        "enable_envvars_config": "true",
        "use_native_io": "false",
        "private_key_file": str(key),
        "certificate_file": str(certificate),
        "load_models": "all",
        "default_workers_per_model": "1",
    }
    environment = {"TS_DEFAULT_RESPONSE_TIMEOUT": "77", "TS_MAX_REQUEST_SIZE": "4096"}
    with pair(environment, properties, prepare=_prepare, kind=_Guarded) as running:
        yield running


def _prepare(server: TorchServe) -> None:
    front.make(Way.ORDINARY, "ordinary", server.store)
    front.make(Way.HERMETIC if server.overlay else Way.ORDINARY, "hermetic", server.store)


def _ask(server: TorchServe, method: str, url: str, token: str | None, body: bytes | None = None) -> object:
    certificate = Path(server.properties["certificate_file"])
    answer = guarded.ask(method, url, token=token, body=body, certificate=certificate)
    return answer.status, front.comparable(server, answer.text)


def _story(server: TorchServe, model: str) -> Story:
    inference, management = guarded.token(server, "inference"), guarded.token(server, "management")
    predict = f"{server.inference}/predictions/{model}"
    models = f"{server.management}/models"

    def is_ready() -> bool:
        return '"READY"' in str(_ask(server, "GET", f"{models}/{model}", management))

    wait_for(is_ready, f"{model} to be loaded")
    story = [
        _ask(server, "POST", predict, None, b'{"a": 1}'),
        _ask(server, "POST", predict, "wrong", b'{"a": 1}'),
        _ask(server, "POST", predict, management, b'{"a": 1}'),
        _ask(server, "POST", predict, inference, b'{"a": 1}'),
        _ask(server, "POST", predict, inference, json.dumps({"long": "x" * 5000}).encode()),
        _ask(server, "GET", f"{models}/{model}", None),
        _ask(server, "GET", f"{models}/{model}", management),
        _ask(server, "POST", f"{models}?url={model}.mar", management),
        _ask(server, "DELETE", f"{models}/{model}", management),
        _ask(server, "PUT", f"{models}/{model}?min_worker=2&max_worker=2&synchronous=true", management),
        _ask(server, "GET", models, management),
    ]
    story.append(sorted(path.name for path in server.logs.iterdir() if "interpool" not in path.name))
    return [*story, server.sockets()]


def test_a_guarded_server_answers_alike(servers: Pair) -> None:
    stock, ordinary = servers.both(lambda server: _story(server, "ordinary"))
    hermetic = _story(servers.pool, "hermetic")
    assert ordinary == stock
    assert [_renamed(part) for part in hermetic] == [_renamed(part) for part in stock]


def _renamed(part: object) -> str:
    return str(part).replace("hermetic", "ordinary")
