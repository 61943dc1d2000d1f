"""Watches this process's limits: the file descriptors that are left, and limits that a model has lowered.

All models of a process share its limits. A host that has too little left refuses a worker, and says what to
do.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import resource

from interpool.handler.frontend import shim
from interpool.native.errors import InterpoolError

OF_WORKER = 7  # descriptors: two log pipes, two connections, an event, a pair for its failed load
_BEFORE_IT_IS_SERVED = 3  # of these, while TorchServe has not connected
_KEPT = 32  # descriptors for the files of the models, and for processes that ask for the status
_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
# Not RLIMIT_DATA, which the host itself changes: memory_brake.py.
_NAMES = ("RLIMIT_NOFILE", "RLIMIT_AS", "RLIMIT_NPROC", "RLIMIT_FSIZE", "RLIMIT_CPU")

logger = logging.getLogger("interpool.host")


def is_shortage(error: BaseException | None) -> bool:
    """Whether an error, or its cause, says that the process has run out of memory or descriptors."""
    while error is not None:
        if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in _SHORTAGES):
            return True
        error = error.__cause__
    return False


class Limits:
    """Looks at the process's limits. For the host's control thread, before it serves any model."""

    def __init__(self) -> None:
        self._before = _limits()
        self._lowered = ""
        self._is_full = False

    @property
    def trouble(self) -> str:
        """Text on what is wrong, for `interpool status`; "" if nothing is."""
        full = f"no other worker is taken: {_scarcity()}" if self._is_full else ""
        return "; ".join(filter(None, (full, self._lowered)))

    @property
    def lowered(self) -> str:
        """Text on limits that a model has lowered and this process may not raise again; "" if none."""
        return self._lowered

    def look(self, unserved: int) -> None:
        """Raise limits again that a model has lowered, and note whether there is room again.

        Args:
            unserved: the number of workers to which TorchServe has not connected.
        """
        self.restore()
        if self._is_full and _left() >= _wanted(unserved):
            self._is_full = False
            logger.info("there are file descriptors for another worker again")

    def restore(self) -> bool:
        """Raise limits again that a model has lowered; the model meant them for itself only.

        Returns:
            True if there were such limits, and all of them could be raised.
        """
        lower = [name for name, now in _limits().items() if _is_lower(now, self._before[name])]
        if not lower:
            self._lowered = ""
            return False
        said = ", ".join(f"{name} (now {_shown(_limits()[name])})" for name in lower)
        why = "a model has lowered it (resource.setrlimit), for all models of its pool"
        raised = [_raise(getattr(resource, name), *self._before[name]) for name in lower]
        if not all(raised):
            before, self._lowered = self._lowered, f"{said}: {why}, and this process may not raise it again"
            if self._lowered != before:
                logger.error("%s", self._lowered)
            return False
        self._lowered = ""
        logger.error("%s: %s. It is raised again", said, why)
        return True

    def refusal(self, unserved: int) -> str:
        """Why there is no room for a worker that registers; "" if there is.

        The worker's first descriptors came with its registration, and are open already.

        Args:
            unserved: the number of workers to which TorchServe has not connected.
        """
        self._is_full = _left() + _BEFORE_IT_IS_SERVED < _wanted(unserved)
        return self.exhausted() if self._is_full else ""

    def exhausted(self) -> str:
        """Why no worker can be taken now, and what to do."""
        self._is_full = True
        advice = (
            "raise the limit (`ulimit -n`, LimitNOFILE= of systemd, --ulimit of Docker) and restart "
            "TorchServe, or have fewer workers"
        )
        return "; ".join(filter(None, (_scarcity(), self._lowered, advice)))

    def explain(self, error: BaseException) -> str:
        """Text on what an error means for the worker in whose service it occurred."""
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            return f"{error.strerror}: {self.exhausted()}"
        if is_shortage(error):
            why = self._lowered or "`interpool status` says what has it"
            return f"the pool host has no memory left for this worker: {why}"
        if isinstance(error, RuntimeError) and "thread" in str(error):  # Python's words, and ours
            advice = (
                "raise `ulimit -u`, `ulimit -v` or the container's number of processes, or have fewer workers"
            )
            return "; ".join(filter(None, (f"{error}", self._lowered, advice)))
        return str(error) if isinstance(error, InterpoolError | shim.Refused) else repr(error)


def _raise(limit: int, soft: int, hard: int) -> bool:
    """Set a limit; False if that is refused. Then the soft limit is as high as it may be."""
    try:
        resource.setrlimit(limit, (soft, hard))
    except (OSError, ValueError):
        _, most = resource.getrlimit(limit)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(limit, (most if _is_lower((most, most), (soft, soft)) else soft, most))
        return False
    return True


def _limits() -> dict[str, tuple[int, int]]:
    return {name: resource.getrlimit(getattr(resource, name)) for name in _NAMES}


def _is_lower(now: tuple[int, int], before: tuple[int, int]) -> bool:
    return any(
        new != resource.RLIM_INFINITY and (old == resource.RLIM_INFINITY or new < old)
        for new, old in zip(now, before, strict=True)
    )


def _shown(limits: tuple[int, int]) -> str:
    return " of ".join("unlimited" if each == resource.RLIM_INFINITY else str(each) for each in limits)


def _most() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _left() -> int:
    try:
        return _most() - len(os.listdir("/proc/self/fd")) + 1  # listdir itself has one of them open
    except OSError:
        return 0


def _wanted(unserved: int) -> int:
    return min(_KEPT, _most() // 4) + OF_WORKER + unserved * (OF_WORKER - _BEFORE_IT_IS_SERVED)


def _scarcity() -> str:
    return (
        f"the pool host has {max(0, _left())} of {_most()} file descriptors left, and keeps some for its "
        f"models' files; a worker needs {OF_WORKER}"
    )
