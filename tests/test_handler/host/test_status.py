"""What `interpool status` says of a pool."""

from __future__ import annotations

from typing import Any

import pool_states

from interpool.handler.host import status


def _pool(**more: Any) -> dict[str, Any]:
    states = ["free", "leased", "leased", "parked", "retired"]
    interpreters = [pool_states.interpreter(i, state, leases=10) for i, state in enumerate(states, 1)]
    stats = {"interpreters": interpreters, "waiting": 4, "min_size": 2, "max_size": 6, "growing": True}
    about = {
        "pool": "default",
        "pid": 1,
        "frontend_pid": 2,
        "uptime_s": 3.0,
        "interpreters": stats,
        "beside": [],
    }
    return {**about, "models": [], "workers": [], "beside": [], "memory": {}, **more}


def test_interpreters_are_counted_by_what_they_are() -> None:
    text = status.describe_pool(_pool())
    assert (
        "interpreters: 3 of at most 6 (2 leased, 1 parked, 1 retired, one more being started, "
        "4 calls waiting, 50 leases so far)"
    ) in text


def test_status_shows_a_model_with_interpreters_of_its_own_and_the_reason() -> None:
    served = {"/m": pool_states.model(traces="it has replaced torch.relu")}
    pool = _pool(models=["/m"], workers=[pool_states.worker()], served=served)
    pool["interpreters"]["interpreters"] += [pool_states.interpreter(i, owner="/m") for i in (6, 7)]
    text = status.describe_pool(pool)
    assert "interpreters: 3 of at most 6 (2 leased, 2 serve one model each, 1 parked," in text
    assert "2 of the interpreters are its own: it has replaced torch.relu" in text


def test_the_direct_address_says_what_it_answered() -> None:
    one = {"model": "m/1.0", "answers": {"200": 5, "503": 1}, "waiting": 2, "times": [], "seconds": 1.0}
    other = {**one, "model": "n/1.0", "answers": {}, "waiting": 0}
    text = status.describe_pool(_pool(direct={"address": "127.0.0.1:8090", "models": [one, other]}))
    assert "direct address 127.0.0.1:8090:" in text
    assert "m/1.0: 5 answered with 200, 1 answered with 503, 2 waiting" in text
    assert "n/1.0: nothing answered, 0 waiting" in text
