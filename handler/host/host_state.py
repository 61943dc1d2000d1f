"""What a pool host says of itself on its control socket, as JSON: the types of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from interpool.handler.direct.traffic import DirectState
    from interpool.native.pool.states import InterpreterState, PoolState


Exemplar = tuple[str, str, float, float]
"""A traced latency: the trace, the span, seconds, and when it ended, in seconds since 1970."""


class ExemplarsState(TypedDict):
    """The last traced latency in each bucket of a histogram, with the bucket's number."""

    waits: list[tuple[int, Exemplar]]
    leased: list[tuple[int, Exemplar]]


class WorkerState(TypedDict):
    """One worker of TorchServe's.

    Attributes:
        pid: of its shim.
        model: name and version of its model, ``name/version``.
        model_dir: the directory of its model.
        address: the socket that TorchServe gave it.
        state: ``waiting``, ``listening``, ``connected``, ``ending`` or ``lost``.
        started: whether its model is loaded.
        seconds: since it is in that state.
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
    """One model, and what happened to it so far.

    Attributes:
        model: ``name/version``.
        loads: in interpreters.
        load_s: seconds that they took, together.
        failed_loads: loads that failed.
        worker_starts: workers that came.
        worker_restarts: those among them that came in another's place.
        worker_ends: workers that ended, by reason.
        given_up: calls that did not come back.
        workers_awaited: workers that ended and that TorchServe has not started again yet.
        reason: of the last load that failed, if none succeeded since.
        traces: what it left in an interpreter, for people.
        exemplars: of its latencies.
        failed_lately: whether the failed load was in the last minutes.
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
        pool: its name.
        pid: of the host's process.
        frontend_pid: of TorchServe's.
        draining: whether the server is about to end.
        uptime_s: seconds since the host started.
        started: when it did, in seconds since 1970.
        interpreters: None until they have started.
        models: the directories of the models that have workers.
        workers: TorchServe's.
        beside: those of the direct address, each beside one of TorchServe's.
        direct: the address at which the pool itself answers; None if there is none.
        served: the registered models, by directory.
        gone: those that were unregistered, by ``name/version``.
        memory: the host's, in bytes, by kind (``status.memory_of``).
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
    """The pool's interpreters; none before they have started."""
    return pool["interpreters"]["interpreters"] if pool["interpreters"] else []
