"""Derives the state of each model from a host's status, in one place: for people, probes and Prometheus."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from interpool.handler.host.host_state import Exemplar, HostState, interpreters

PATIENCE_S = 30.0


@dataclass
class ModelView:
    """A model in one pool. A model that was registered twice under a name counts as one."""

    name: str  # the name that it is registered by
    version: str  # the version that it is registered by
    # Whether it is registered now; the counts of a model that was unregistered remain.
    registered: bool = True
    workers: Counter[str] = field(default_factory=Counter)  # the number of workers in each state
    starting: int = 0  # workers that are connected and wait for the model to be loaded
    awaited: int = 0  # workers that ended and that TorchServe has not started again yet
    starts: int = 0  # workers so far
    restarts: int = 0  # those among them that took another's place
    ends: Counter[str] = field(default_factory=Counter)  # workers that ended, by reason
    # Numbers of the interpreters that have served it, and as a rule have it loaded.
    interpreters: set[int] = field(default_factory=set)
    leases: int = 0  # leases of interpreters so far
    # Numbers of leases by how long they waited, in the buckets of the pool's bounds.
    waits: list[int] = field(default_factory=list)
    waited_s: float = 0.0  # seconds that leases waited, together
    # Of traced waits, by the bucket's number (see ``span_export.Exemplars``).
    wait_exemplars: dict[int, Exemplar] = field(default_factory=dict)
    lease_exemplars: dict[int, Exemplar] = field(default_factory=dict)  # of traced leases, likewise
    # Numbers of leases by how long they lasted, in the same buckets.
    leased: list[int] = field(default_factory=list)
    leased_s: float = 0.0  # seconds that leases lasted, together
    requests: int = 0  # requests that were answered
    failed_requests: int = 0  # those among them whose batch was answered by an error
    waiting: int = 0  # calls that wait for an interpreter now
    longest_wait_s: float = 0.0  # seconds that the first of these has waited
    longest_lease_s: float = 0.0  # seconds that the longest lease that has not ended has lasted
    loads: int = 0  # loads in interpreters so far
    load_s: float = 0.0  # seconds that these loads took, together
    failed_loads: int = 0  # loads that failed so far
    reason: str = ""  # why the last load failed; "" if one has succeeded since, or none failed
    failed_lately: bool = False  # whether that failed load was in the last two minutes

    def is_called(self, name: str) -> bool:
        """Whether it goes by ``name``: a model's name, with or without ``/version``, or ``*``."""
        return name in ("*", self.name, f"{self.name}/{self.version}")


def names_of(pool: HostState) -> dict[str, str]:
    """The ``name/version`` of each of the pool's registered models, by directory."""
    return {directory: str(model["model"]) for directory, model in pool.get("served", {}).items()}


def models_of(pool: HostState) -> list[ModelView]:
    """The models of a pool, sorted by name, with those that were unregistered.

    Args:
        pool: the state that the pool's host has sent.
    """
    names = names_of(pool)
    gone = pool.get("gone", {})
    views = {name: ModelView(*name.partition("/")[::2]) for name in sorted({*names.values(), *gone})}
    here = [(names[directory], model) for directory, model in pool.get("served", {}).items()]
    for name, model in (*here, *gone.items()):
        view = views[name]
        view.starts += model["worker_starts"]
        view.restarts += model["worker_restarts"]
        view.ends.update(model["worker_ends"])
        view.loads += model["loads"]
        view.load_s += model["load_s"]
        view.failed_loads += model["failed_loads"]
    for name, view in views.items():
        view.registered = name in names.values()
    for name, model in here:
        views[name].awaited += model["workers_awaited"]
        views[name].wait_exemplars.update(model["exemplars"]["waits"])
        views[name].lease_exemplars.update(model["exemplars"]["leased"])
    for name, model in (
        *here,
        *((name, model) for name, model in gone.items() if not views[name].registered),
    ):
        views[name].reason = views[name].reason or model["reason"]
        views[name].failed_lately |= model["failed_lately"]
    for worker in pool["workers"]:
        if worker["model_dir"] in names:
            view = views[names[worker["model_dir"]]]
            view.workers[worker["state"]] += 1
            view.starting += worker["state"] == "connected" and not worker["started"]
    for interpreter in interpreters(pool):
        for directory in interpreter["affinities"]:
            if directory in names:
                views[names[directory]].interpreters.add(interpreter["interpreter"])
        if interpreter["model"] in names:
            view = views[names[interpreter["model"]]]
            view.longest_lease_s = max(view.longest_lease_s, interpreter["seconds"] or 0.0)
    for directory, counts in (pool["interpreters"]["models"] if pool["interpreters"] else {}).items():
        if directory in names:
            view = views[names[directory]]
            view.leases += counts["leases"]
            view.waits = _added(view.waits, counts["waits"])
            view.leased = _added(view.leased, counts["leased"])
            view.requests += counts["requests"]
            view.failed_requests += counts["failed_requests"]
            view.waited_s += counts["waited_s"]
            view.leased_s += counts["leased_s"]
            view.waiting += counts["waiting"]
            view.longest_wait_s = max(view.longest_wait_s, counts["longest_wait_s"])
    return list(views.values())


def _added(some: list[int], more: list[int]) -> list[int]:
    return [one + other for one, other in zip(some, more, strict=True)] if some else list(more)


def why_not_ready(pool: HostState, view: ModelView, patience_s: float = PATIENCE_S) -> list[str]:
    """Each reason for which the model's next request may not be answered; none if it is ready.

    Args:
        pool: the state that the pool's host has sent.
        view: the model.
        patience_s: seconds that a call may wait for an interpreter.
    """
    reasons = []
    if pool["draining"]:
        reasons.append("the server is about to end")
    stats = pool["interpreters"]
    if stats is None:
        reasons.append("the pool's interpreters have not started yet")
    elif not any(one["state"] in ("free", "leased") for one in stats["interpreters"]):
        reasons.append("every interpreter of the pool was retired")
    # TorchServe has given up workers in these two states; a call of theirs still runs.
    workers = {state: count for state, count in view.workers.items() if state not in ("ending", "lost")}
    if others := sum(workers.values()) - workers.get("connected", 0):
        states = ", ".join(f"{count} {state}" for state, count in sorted(workers.items()))
        reasons.append(f"{others} of its workers are not connected ({states})")
    if view.awaited:
        reasons.append(f"{view.awaited} of its workers ended, and TorchServe has not started them again yet")
    if not workers:
        reasons.append("it has no workers")
    if view.failed_lately:
        reasons.append(view.reason)
    if view.starting:
        reasons.append(f"{view.starting} of its workers wait for an interpreter to load it")
    if view.longest_wait_s > patience_s:
        reasons.append(
            f"a call has waited {view.longest_wait_s:.0f} s for an interpreter; "
            "`interpool status --stacks` shows what they do"
        )
    return reasons
