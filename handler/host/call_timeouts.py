"""Ends calls that take longer than their limit, or whose answer no client waits for any more.

With its own workers, TorchServe kills a worker whose answer takes longer than ``responseTimeout``, and one
that it scales down or unregisters. All code that runs there ends with the process. In a pool, the host
notices the worker's end at once, and *interrupts* a call that still runs: it raises an exception in the
model's Python code. It does so up to three times, as code may catch everything. Native code cannot be
interrupted. A call that has not returned then is *given up*: the host retires its interpreter, starts
another one in its place, and leaves the call to itself.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from dataclasses import dataclass, field

from interpool.handler.host.log_lines import about
from interpool.handler.host.worker import Worker
from interpool.handler.log_format import named

GRACE_S = 5.0
PAUSE_S = 0.2  # between two looks, while a call is being ended
# Not in quick succession: the code may be cleaning up.
_INTERRUPTIONS = (0.0, 0.5, 0.75)  # when, as parts of the grace

logger = logging.getLogger("interpool.host")


@dataclass(frozen=True)
class GivenUp:
    """A call that was left to itself, with its interpreter."""

    worker: Worker  # whose call it was
    reason: str  # why it was given up, for the log


@dataclass
class _Overdue:
    since: float
    why: str
    interruptions: int = field(default=0)


class CallTimeouts:
    """Ends calls. Its methods are for the host's control thread.

    Args:
        grace_s: seconds that an interrupted call has to return.
    """

    def __init__(self, grace_s: float = GRACE_S) -> None:
        self._grace_s = grace_s
        self._overdue: dict[Worker, _Overdue] = {}

    @property
    def is_busy(self) -> bool:
        """Whether calls are being ended, so that ``look`` is due after ``PAUSE_S``."""
        return bool(self._overdue)

    def look(self, workers: Collection[Worker]) -> list[GivenUp]:
        """Interrupt or give up the calls of these workers that are overdue.

        Args:
            workers: those that are served, and those that have ended with calls that still run.

        Returns:
            The calls that were given up now.
        """
        self._overdue = {worker: overdue for worker, overdue in self._overdue.items() if worker in workers}
        now = time.monotonic()
        lost = []
        for worker in workers:
            running = worker.connection.running if worker.connection is not None else None
            why = _why_to_end(worker, running)
            if not why:
                if self._overdue.pop(worker, None) is not None:
                    logger.info("worker %d: %s has come back", worker.registration.pid, worker.model)
                continue
            overdue = self._overdue.setdefault(worker, _Overdue(now, why))
            if now - overdue.since >= self._grace_s:
                del self._overdue[worker]
                if given_up := self._give_up(worker, overdue):
                    lost.append(given_up)
            else:
                self._interrupt(worker, overdue, now - overdue.since)
        return lost

    def _interrupt(self, worker: Worker, overdue: _Overdue, elapsed: float) -> None:
        due = sum(part * self._grace_s <= elapsed for part in _INTERRUPTIONS)
        if worker.connection is None:
            return
        first = overdue.interruptions == 0
        if overdue.interruptions < due or worker.connection.importing:
            overdue.interruptions = due
            requests = worker.connection.requests
            worker.connection.interrupt()
            if first:
                logger.warning(
                    "worker %d: a call of %s is interrupted: %s",
                    worker.registration.pid,
                    worker.model,
                    overdue.why,
                    extra=about(requests),
                )

    @staticmethod
    def _give_up(worker: Worker, overdue: _Overdue) -> GivenUp | None:
        assert worker.connection is not None
        where = worker.connection.where or " in native code that does not let go of its interpreter's GIL"
        requests = worker.connection.requests
        interpreter = worker.connection.give_up()
        if interpreter is None:  # it returned at the last moment
            return None
        reason = (
            f"a call of {worker.model}{named(requests)} was interrupted, because {overdue.why}, and did not "
            f"come back: interpreter {interpreter} is retired. It was here:{where}"
        )
        logger.error("worker %d: %s", worker.registration.pid, reason)
        return GivenUp(worker, reason)


def _why_to_end(worker: Worker, running: float | None) -> str:
    if running is None or worker.answering:
        return ""
    if worker.state == "ending":
        return "its worker has ended, and no client waits for its answer"
    limit = worker.call_limit_s
    if limit is None or worker.without_load(running) <= limit:
        return ""
    return f"it took longer than its limit of {limit:g} s"
