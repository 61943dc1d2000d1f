"""The types of the state that a pool host sends on its control socket, as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from interpool.handler.direct.traffic import DirectState
    from interpool.native.pool.states import InterpreterState, PoolState


Exemplar = tuple[str, str, float, float]
"""A traced latency: the trace, the span, seconds, and when it ended, in seconds since 1970."""


class ExemplarsState(TypedDict):
    """The last traced latency in each bucket of a histogram, with the bucket's number."""

    waits: list[tuple[int, Exemplar]]  # of waits for an interpreter
    leased: list[tuple[int, Exemplar]]  # of leases of an interpreter


class WorkerState(TypedDict):
    """One worker of TorchServe's."""

    pid: int  # its shim's process id
    model: str  # its model's ``name/version``
    model_dir: str  # the directory of its model
    address: str  # the socket that TorchServe gave it
    state: str  # ``waiting``, ``listening``, ``connected``, ``ending`` or ``lost``
    started: bool  # whether its model is loaded
    seconds: float  # for which it has been in that state
    direct: bool  # whether the direct address uses it


class ServedState(TypedDict):
    """One model, and its counts so far."""

    model: str  # ``name/version``
    loads: int  # how often an interpreter loaded it
    load_s: float  # seconds that these loads took, together
    failed_loads: int  # loads that failed
    worker_starts: int  # workers that were registered for it
    worker_restarts: int  # those among them that took another's place
    worker_ends: dict[str, int]  # workers that ended, by reason
    given_up: int  # calls that did not return
    workers_awaited: int  # workers that ended and that TorchServe has not started again yet
    reason: str  # why the last load failed; "" if one has succeeded since, or none failed
    traces: str  # what the model left in an interpreter, for people; "" if nothing
    exemplars: ExemplarsState  # traced latencies of the model
    failed_lately: bool  # whether that failed load was in the last two minutes


class HostState(TypedDict):
    """A pool host."""

    server: str  # its TorchServe's inference address, without the scheme; else its own, or `pid N`
    pool: str  # the pool's name
    pid: int  # the host's process id
    frontend_pid: int  # the process id of TorchServe's frontend
    draining: bool  # whether the server is about to end
    uptime_s: float  # seconds since the host started
    started: float  # the time of that start, in seconds since 1970
    interpreters: PoolState | None  # the state of the interpreters; None until the first one has started
    models: list[str]  # the directories of the models that have workers
    workers: list[WorkerState]  # TorchServe's workers
    beside: list[WorkerState]  # the direct address's workers, each beside one of TorchServe's
    direct: DirectState | None  # the address at which the pool itself answers; None if there is none
    served: dict[str, ServedState]  # the registered models, by directory
    # The models that were unregistered or left to TorchServe's own workers, by ``name/version``.
    gone: dict[str, ServedState]
    memory: dict[str, int]  # the host's memory in bytes, by kind (``status.memory_of``)
    trouble: str  # what is wrong with the host, for people; "" if nothing is
    stacks: NotRequired[str]  # the interpreters' Python stacks, if they were asked for


def interpreters(pool: HostState) -> list[InterpreterState]:
    """The pool's interpreters; an empty list before the first one has started."""
    return pool["interpreters"]["interpreters"] if pool["interpreters"] else []
