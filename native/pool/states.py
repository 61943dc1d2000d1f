"""The types of a pool's state, as in ``InterpreterManager.stats``."""

from __future__ import annotations

from typing import Literal, TypedDict


class InterpreterState(TypedDict):
    """One interpreter.

    Attributes:
        interpreter: its number.
        state: ``parked`` means free and above the minimum size.
        leased: whether it is leased.
        leases: the number of leases so far.
        affinities: affinities that it served, and whose models it may have loaded.
        idle: for each of these, the seconds since it last served it.
        owner: the affinity to which it is dedicated; None if shared.
        model: the affinity of the lease; None if it is not leased.
        seconds: the duration of the lease; None if it is not leased.
    """

    interpreter: int
    state: Literal["free", "leased", "parked", "retired"]
    leased: bool
    leases: int
    affinities: list[str]
    idle: list[float]
    owner: str | None
    model: str | None
    seconds: float | None


class ModelState(TypedDict):
    """The calls of one affinity.

    Attributes:
        leases: the number of leases so far.
        waited_s: seconds that all leases waited in total.
        waits: a histogram of the waits by ``time_bounds_s``; the last entry counts longer ones.
        leased_s: seconds of all ended leases in total.
        leased: a histogram of their durations, like ``waits``.
        requests: the number that ``serve`` has answered.
        failed_requests: the number in batches that were answered with an error.
        waiting: the number of waiting callers.
        running: the number of current leases.
        share: the most leases at once; None for no limit.
        longest_wait_s: the longest wait of the waiting callers, in seconds.
    """

    leases: int
    waited_s: float
    waits: list[int]
    leased_s: float
    leased: list[int]
    requests: int
    failed_requests: int
    waiting: int
    running: int
    share: int | None
    longest_wait_s: float


class PoolState(TypedDict):
    """A pool.

    Attributes:
        interpreters: all interpreters.
        waiting: the number of callers that wait for an interpreter.
        reserve: the number of interpreters reserved for models that have none.
        min_size: the minimum number of interpreters.
        max_size: the maximum number of interpreters.
        growing: whether one more interpreter is starting.
        models: by affinity, without forgotten ones.
        time_bounds_s: the upper bounds of ``waits`` and ``leased``, in seconds.
        failed_starts: the number of failed starts after the initial ones.
        failure: why the last start failed; "" after a successful one.
    """

    interpreters: list[InterpreterState]
    waiting: int
    reserve: int
    min_size: int
    max_size: int
    growing: bool
    models: dict[str, ModelState]
    time_bounds_s: list[float]
    failed_starts: int
    failure: str


class Lease(TypedDict):
    """An interpreter, and the kernel number of the host thread that leases it."""

    interpreter: int
    state: str
    seconds: float
    holder: int


class OpenLease(Lease):
    """A lease that was not returned.

    Attributes:
        answered: whether the interpreter listed its objects in time.
        session: whether a session has the lease.
        labels: the session's objects, by type and owner.
    """

    answered: bool
    session: bool
    labels: list[str]


class ThreadStack(TypedDict):
    """One thread's frames, innermost first; none if no Python code runs."""

    thread: int
    name: str
    frames: list[str]


class InterpreterStacks(Lease):
    """The stacks of one interpreter.

    Attributes:
        inside: the kernel number of the thread that has its GIL; 0 if none or its own thread has it.
        answered: whether its GIL was acquired in time.
        threads: all threads that have run there.
    """

    inside: int
    answered: bool
    threads: list[ThreadStack]
