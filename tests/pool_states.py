"""What a host may answer to `status`, in full."""

from __future__ import annotations

from typing import Any

Fields = dict[str, Any]


def model(name: str = "m/1.0", **more: Any) -> Fields:
    counts = {"loads": 1, "load_s": 0.5, "failed_loads": 0, "worker_starts": 2, "worker_restarts": 0}
    rest = {
        "worker_ends": {},
        "given_up": 0,
        "workers_awaited": 0,
        "reason": "",
        "traces": "",
        "exemplars": {"waits": [], "leased": []},
        "failed_lately": False,
    }
    return {"model": name, **counts, **rest, **more}


def worker(directory: str = "/m", **more: Any) -> Fields:
    about = {"pid": 7, "model": "m/1.0", "model_dir": directory, "address": "unix:/s"}
    return {**about, "state": "connected", "started": True, "seconds": 1.0, "direct": False, **more}


def interpreter(number: int, state: str = "free", **more: Any) -> Fields:
    about = {"interpreter": number, "state": state, "leased": state == "leased", "leases": 3}
    return {**about, "affinities": [], "model": None, "seconds": None, "owner": None, **more}


def leases(**more: Any) -> Fields:
    waits = {"waits": [2, 1, 0], "waited_s": 0.3, "waiting": 0, "longest_wait_s": 0.0}
    answered = {"leased_s": 1.5, "leased": [1, 1, 1], "requests": 5, "failed_requests": 1}
    return {"leases": 3, **answered, **waits, **more}


def pool(**more: Any) -> Fields:
    """One model with two workers on two interpreters."""
    stats = {
        "interpreters": [interpreter(1, affinities=["/m"]), interpreter(2)],
        "models": {"/m": leases(), "": leases()},
        "time_bounds_s": [0.01, 1],
        "waiting": 0,
        "min_size": 2,
        "max_size": 4,
        "growing": False,
        "failed_starts": 0,
        **more.pop("stats", {}),
    }
    return {
        "server": "127.0.0.1:8080",
        "pool": "default",
        "pid": 1,
        "frontend_pid": 2,
        "draining": False,
        "uptime_s": 3.0,
        "started": 1000.0,
        "interpreters": stats,
        "beside": [],
        "direct": None,
        "models": ["/m"],
        "workers": [worker(), worker()],
        "served": {"/m": model()},
        "gone": {},
        "memory": {"pss": 100, "anonymous": 60, "file": 40, "private_dirty": 50},
        **more,
    }
