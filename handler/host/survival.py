"""Survives failures in the host's control plane, for a limited time, and logs them in few lines.

A step that fails once may succeed the next time: memory may be short for a moment. If every turn fails for
some time, the host leaves, and the next host starts without the cause. If a model has closed descriptors
that are not its own, no later turn can succeed. That ends this host at once.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import time
from collections.abc import Callable

MOST_FAILED_TURNS = 24  # one after another: ten seconds, with the pauses between them
PAUSES_S = (0.05, 0.5)  # after the first failed turn; at most
QUIET_S = 60.0  # in which the same failure is not logged again
_MOST_KINDS = 100  # of failures that the log keeps apart
_CANNOT_HEAL = (errno.EBADF, errno.ENOTSOCK)

logger = logging.getLogger("interpool.host")


class Survival:
    """Runs steps that may fail. For the host's control thread."""

    def __init__(self) -> None:
        self._has_failed = False
        self._in_a_row = 0
        self._logged: dict[str, tuple[float, int]] = {}  # when each was logged, and how often it came since
        self._beyond_repair = ""

    def attempt(self, step: Callable[[], object], failure: str) -> Exception | None:
        """Run a step. Any error in it is logged, also a lack of memory, and ends nothing else.

        Args:
            step: the step.
            failure: the log's words for an error in it.

        Returns:
            The error; None if the step succeeded.
        """
        try:
            step()
        except Exception as error:  # noqa: BLE001 - whatever it is, others are served
            self._has_failed = True
            if isinstance(error, OSError) and error.errno in _CANNOT_HEAL:
                self._beyond_repair = f"{failure}: {error.strerror}. Has a model closed what is not its own?"
            with contextlib.suppress(Exception):  # there may be no memory for a log line either
                self._log(failure, error)
            return error
        return None

    def leave(self, reason: str) -> None:
        """Have the host leave at the end of this turn, for this reason."""
        self._beyond_repair = reason

    def end_turn(self) -> str:
        """Pause if a step failed, so that a lasting failure does not keep the processor busy.

        Returns:
            Why the host must leave; "" if it goes on.
        """
        if self._beyond_repair:
            return self._beyond_repair
        if not self._has_failed:
            self._in_a_row = 0
            return ""
        self._has_failed = False
        self._in_a_row += 1
        if self._in_a_row >= MOST_FAILED_TURNS:
            return "its turns fail"
        first, longest = PAUSES_S
        time.sleep(min(first * 2 ** (self._in_a_row - 1), longest))
        return ""

    def _log(self, failure: str, error: Exception) -> None:
        kind, now = f"{failure}: {error!r}", time.monotonic()
        since, often = self._logged.get(kind, (-QUIET_S, 0))
        if now - since < QUIET_S:
            self._logged[kind] = since, often + 1
            return
        if len(self._logged) >= _MOST_KINDS:
            self._logged.clear()
        self._logged[kind] = now, 0
        if often:
            logger.error("%s; %d times more in the last %.0f s", kind, often + 1, now - since)
        else:
            logger.error("%s", failure, exc_info=error)
