"""What a pool says of itself: the types of ``InterpreterManager.stats``."""

from __future__ import annotations

from typing import Literal, TypedDict


class InterpreterState(TypedDict):
    """One interpreter.

    Attributes:
        interpreter: its number.
        state: ``parked`` is free and above the minimum size.
        leases: so far.
        affinities: what it served, and may have loaded.
        idle: for each of these, the seconds since it was last served there.
        owner: the affinity that alone leases it; None: all that share.
        model: the affinity of the lease; None if it is not leased.
        seconds: since when it is leased; None if it is not.
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
        leases: so far.
        waited_s: seconds that these waited, together.
        waits: how many waited up to each of ``time_bounds_s`` and longer than the bound before it; the last
            one, longer than all.
        leased_s: seconds that the leases which have ended took, together.
        leased: likewise as ``waits``.
        requests: that ``serve`` has answered.
        failed_requests: those of batches that were answered by an error.
        waiting: callers.
        running: leases.
        share: the most leases at once; None without a limit.
        longest_wait_s: of the callers that wait.
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
        interpreters: all of them.
        waiting: callers that wait for an interpreter.
        reserve: interpreters for models that have none.
        min_size: interpreters that there are at least.
        max_size: interpreters that there are at most.
        growing: whether one more is being started.
        models: by affinity, without those that ``forget`` was given.
        time_bounds_s: the upper bounds of ``waits`` and ``leased``, in seconds.
        failed_starts: of interpreters after the first ones.
        failure: why the last start failed, "" once another has succeeded.
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
    """Which interpreter, and the thread of this process (by the kernel's number) that has leased it."""

    interpreter: int
    state: str
    seconds: float
    holder: int


class OpenLease(Lease):
    """A lease that was not given back.

    Attributes:
        answered: whether the interpreter could be asked what is held.
        session: whether a session holds it.
        labels: what is held, by type and owner.
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
        inside: the thread that has its GIL, by the kernel's number; 0 if none or its own.
        answered: whether its GIL could be had in time.
        threads: all that have run there.
    """

    inside: int
    answered: bool
    threads: list[ThreadStack]
