"""Finds whether a model is ready, for ``interpool status --check`` and for ``GET /ready``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from interpool.handler.host.host_state import HostState
from interpool.handler.host.model_status import PATIENCE_S, models_of, why_not_ready

ANY = "*"


@dataclass(frozen=True)
class Readiness:
    """One registered model in one pool.

    Attributes:
        model: its name.
        version: its version.
        pool: the pool's name.
        reasons: why its next request may not be answered; none if it is ready.
    """

    model: str
    version: str
    pool: str
    reasons: list[str]


def readiness(pools: list[HostState], name: str, patience_s: float = PATIENCE_S) -> list[Readiness]:
    """The readiness of each registered model of that name.

    Args:
        pools: the states that the pools' hosts have sent.
        name: a model's name, with or without ``/version``; ``*``: every model.
        patience_s: seconds that a call may wait for an interpreter.
    """
    return [
        Readiness(view.name, view.version, str(pool["pool"]), why_not_ready(pool, view, patience_s))
        for pool in pools
        for view in models_of(pool)
        if view.registered and view.is_called(name)
    ]


def why_absent(pools: list[HostState], name: str) -> str:
    """Why no pool serves a model of that name, and which models the pools serve, for people.

    Args:
        pools: the states that the pools' hosts have sent.
        name: a model's name, with or without ``/version``; ``*``: any model.
    """
    views = [view for pool in pools for view in models_of(pool)]
    failed = [view.reason for view in views if view.is_called(name) and view.reason]
    what = "any model" if name == ANY else f"a model {name!r}"
    here = sorted({f"{view.name}/{view.version}" for view in views if view.registered})
    others = f" (served: {', '.join(here)})" if here else ""
    return f"no pool serves {what}{others}" + "".join(f"; it could not be loaded: {why}" for why in failed)


def answer_of(found: list[Readiness], silent: list[str]) -> dict[str, Any]:
    """The JSON object of an answer: ``ready`` says whether all are, and ``models`` has each.

    Args:
        found: the models of that name.
        silent: texts on the hosts that did not answer. Such a host may serve the model, too.
    """
    ready = not silent and not any(one.reasons for one in found)
    hosts = {"silent_hosts": silent} if silent else {}
    return {"ready": ready, "models": [vars(one) for one in found], **hosts}


def with_probes(
    app: WSGIApplication, ask: Callable[[], tuple[list[HostState], list[str]]]
) -> WSGIApplication:
    """Add ``GET /ready`` and ``GET /health``, which answer JSON, to an application.

    ``/ready`` answers 200 if every host answers and every registered model is ready, or with ``?model=NAME``
    if that one is. Else it answers 503 with the reasons. ``/health`` answers 200 if every host that listens
    answers; else 503.

    Args:
        app: answers all other paths.
        ask: returns the states that the pools' hosts have sent, and texts on the hosts that did not answer.
    """

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path not in ("/ready", "/health"):
            return app(environ, start_response)
        pools, silent = ask()
        if path == "/health":
            ok = not silent
            found: dict[str, Any] = {"pools": len(pools), "silent_hosts": silent}
        else:
            name = parse_qs(environ.get("QUERY_STRING", "")).get("model", [ANY])[0]
            models = readiness(pools, name)
            found = answer_of(models, silent)
            if not models:
                found |= {"ready": False, "reason": why_absent(pools, name)}
            ok = bool(found["ready"])
        body = json.dumps(found).encode()
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        start_response("200 OK" if ok else "503 Service Unavailable", headers)
        return [body]

    return answer
