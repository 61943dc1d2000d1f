"""Probes: what `GET /ready` and `GET /health` answer."""

from __future__ import annotations

import json
from typing import Any
from wsgiref.util import setup_testing_defaults

import pool_states

from interpool.handler.host.readiness import with_probes


def _get(
    target: str, *pools: dict[str, Any], silent: tuple[str, ...] = ()
) -> tuple[str, dict[str, Any] | bytes]:
    environ: dict[str, Any] = {}
    setup_testing_defaults(environ)
    environ["PATH_INFO"], _, environ["QUERY_STRING"] = target.partition("?")
    said: list[str] = []

    def app(_environ: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", [])
        return [b"metrics"]

    answer = with_probes(app, lambda: (list(pools), list(silent)))
    body = b"".join(answer(environ, lambda status, _headers, _error=None: said.append(status)))  # type: ignore[arg-type]
    return said[0], body if body == b"metrics" else json.loads(body)


def test_a_server_is_ready_when_all_of_its_models_are() -> None:
    status, found = _get("/ready", pool_states.pool())
    assert status == "200 OK"
    assert found == {
        "ready": True,
        "models": [{"model": "m", "version": "1.0", "pool": "default", "reasons": []}],
    }


def test_a_model_that_cannot_be_answered_makes_it_unready_and_says_why() -> None:
    waiting = pool_states.pool(workers=[pool_states.worker(), pool_states.worker(state="waiting")])
    for target in ("/ready", "/ready?model=m", "/ready?model=m/1.0"):
        status, found = _get(target, waiting)
        assert status == "503 Service Unavailable"
        assert "1 of its workers are not connected" in str(found)


def test_a_model_that_no_pool_serves_is_not_ready() -> None:
    status, found = _get("/ready?model=other", pool_states.pool())
    assert status == "503 Service Unavailable"
    assert found == {"ready": False, "models": [], "reason": "no pool serves a model 'other' (served: m/1.0)"}
    assert _get("/ready")[0] == "503 Service Unavailable"


def test_a_host_that_does_not_answer_makes_the_server_unready_as_it_may_serve_the_model() -> None:
    for target in ("/ready", "/ready?model=m"):
        status, found = _get(target, pool_states.pool(), silent=("/run/a",))
        assert status == "503 Service Unavailable"
        assert isinstance(found, dict)
        assert (found["ready"], found["silent_hosts"]) == (False, ["/run/a"])


def test_a_host_that_does_not_answer_is_not_healthy() -> None:
    assert _get("/health", pool_states.pool()) == ("200 OK", {"pools": 1, "silent_hosts": []})
    assert _get("/health", silent=("/run/a",)) == (
        "503 Service Unavailable",
        {"pools": 0, "silent_hosts": ["/run/a"]},
    )


def test_other_paths_are_the_exporters() -> None:
    assert _get("/metrics", pool_states.pool()) == ("200 OK", b"metrics")
