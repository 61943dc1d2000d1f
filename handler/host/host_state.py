"""The types of the state that a pool host sends on its control socket, as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from interpool.handler.direct.traffic import DirectState
    from interpool.native.pool.states import InterpreterState, PoolState


Exemplar = tuple[str, str, float, float]
"""A traced latency: the trace, the span, seconds, and when it ended, in seconds since 1970."""


class ExemplarsState(TypedDict):
    """The last traced latency in each bucket of a histogram, with the bucket's number.

    Attributes:
        waits: of waits for an interpreter.
        leased: of leases of an interpreter.
    """

    waits: list[tuple[int, Exemplar]]
    leased: list[tuple[int, Exemplar]]


class WorkerState(TypedDict):
    """One worker of TorchServe's.

    Attributes:
        pid: its shim's process id.
        model: its model's ``name/version``.
        model_dir: the directory of its model.
        address: the socket that TorchServe gave it.
        state: ``waiting``, ``listening``, ``connected``, ``ending`` or ``lost``.
        started: whether its model is loaded.
        seconds: for which it has been in that state.
        direct: whether the direct address uses it.
    """

    pid: int
    model: str
    model_dir: str
    address: str
    state: str
    started: bool
    seconds: float
    direct: bool


class ServedState(TypedDict):
    """One model, and its counts so far.

    Attributes:
        model: ``name/version``.
        loads: how often an interpreter loaded it.
        load_s: seconds that these loads took, together.
        failed_loads: loads that failed.
        worker_starts: workers that were registered for it.
        worker_restarts: those among them that took another's place.
        worker_ends: workers that ended, by reason.
        given_up: calls that did not return.
        workers_awaited: workers that ended and that TorchServe has not started again yet.
        reason: why the last load failed; "" if one has succeeded since, or none failed.
        traces: what the model left in an interpreter, for people; "" if nothing.
        exemplars: traced latencies of the model.
        failed_lately: whether that failed load was in the last two minutes.
    """

    model: str
    loads: int
    load_s: float
    failed_loads: int
    worker_starts: int
    worker_restarts: int
    worker_ends: dict[str, int]
    given_up: int
    workers_awaited: int
    reason: str
    traces: str
    exemplars: ExemplarsState
    failed_lately: bool


class HostState(TypedDict):
    """A pool host.

    Attributes:
        server: the inference address of its TorchServe, without the scheme.
        pool: the pool's name.
        pid: the host's process id.
        frontend_pid: the process id of TorchServe's frontend.
        draining: whether the server is about to end.
        uptime_s: seconds since the host started.
        started: the time of that start, in seconds since 1970.
        interpreters: the state of the interpreters; None until the first one has started.
        models: the directories of the models that have workers.
        workers: TorchServe's workers.
        beside: the direct address's workers, each beside one of TorchServe's.
        direct: the address at which the pool itself answers; None if there is none.
        served: the registered models, by directory.
        gone: the models that were unregistered or left to TorchServe's own workers, by ``name/version``.
        memory: the host's memory in bytes, by kind (``status.memory_of``).
        trouble: what is wrong with the host, for people; "" if nothing is.
        stacks: the interpreters' Python stacks, if they were asked for.
    """

    server: str
    pool: str
    pid: int
    frontend_pid: int
    draining: bool
    uptime_s: float
    started: float
    interpreters: PoolState | None
    models: list[str]
    workers: list[WorkerState]
    beside: list[WorkerState]
    direct: DirectState | None
    served: dict[str, ServedState]
    gone: dict[str, ServedState]
    memory: dict[str, int]
    trouble: str
    stacks: NotRequired[str]


def interpreters(pool: HostState) -> list[InterpreterState]:
    """The pool's interpreters; an empty list before the first one has started."""
    return pool["interpreters"]["interpreters"] if pool["interpreters"] else []
