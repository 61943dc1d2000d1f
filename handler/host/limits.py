"""What this process may still have: file descriptors, and limits that a model has lowered.

A process has its limits for all of its models. A host that runs out refuses a worker, and says what to do.
"""

from __future__ import annotations

import errno
import logging
import os
import resource

from interpool.handler.frontend import shim
from interpool.native.errors import InterpoolError

OF_WORKER = 7  # descriptors: two log pipes, two connections, an event, a pair for its failed load
_BEFORE_IT_IS_SERVED = 3  # of these, while TorchServe has not connected
_KEPT = 32  # for the files of the models, and for who asks how the pool is
_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_NAMES = {
    "RLIMIT_NOFILE": "file descriptors",
    "RLIMIT_AS": "bytes of address space",
    "RLIMIT_DATA": "bytes of data",
    "RLIMIT_NPROC": "processes and threads of this user",
    "RLIMIT_FSIZE": "bytes of a file",
    "RLIMIT_CPU": "seconds of CPU time",
}

logger = logging.getLogger("interpool.host")


def is_shortage(error: BaseException | None) -> bool:
    """Whether an error, or what caused it, says that the process has run out of something."""
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
        """What is wrong, for `interpool status`; "" if nothing is."""
        full = f"no other worker is taken: {_scarcity()}" if self._is_full else ""
        return "; ".join(filter(None, (full, self._lowered)))

    def look(self, unserved: int) -> None:
        """Say in the log what a model has changed, and note whether there is room again.

        Args:
            unserved: workers to which TorchServe has not connected.
        """
        before, self._lowered = self._lowered, self._what_is_lower()
        if self._lowered not in ("", before):
            logger.error("%s", self._lowered)
        if self._is_full and _left() >= _wanted(unserved):
            self._is_full = False
            logger.info("there are file descriptors for another worker again")

    def refusal(self, unserved: int) -> str:
        """Why there is no room for one more worker; "" if there is."""
        self._is_full = _left() < _wanted(unserved)
        return self.exhausted() if self._is_full else ""

    def exhausted(self) -> str:
        """Why no worker can be taken now, and what to do."""
        self._is_full = True
        advice = (
            "raise the limit (`ulimit -n`, LimitNOFILE= of systemd, --ulimit of Docker) and restart "
            "TorchServe, or have fewer workers"
        )
        return "; ".join(filter(None, (_scarcity(), self._what_is_lower(), advice)))

    def explain(self, error: BaseException) -> str:
        """What an error means to the worker that met it."""
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            return f"{error.strerror}: {self.exhausted()}"
        if is_shortage(error):
            lower = self._what_is_lower()
            said = "the pool host has no memory left for this worker"
            return f"{said}: {lower}" if lower else f"{said}; `interpool status` says what has it"
        return str(error) if isinstance(error, InterpoolError | shim.Refused) else repr(error)

    def _what_is_lower(self) -> str:
        now = _limits()
        lower = [
            f"{name} of the pool host is {value} {_NAMES[name]} now, and was {_shown(self._before[name])}"
            for name, value in now.items()
            if _is_lower(value, self._before[name])
        ]
        if not lower:
            return ""
        return f"{', '.join(lower)}: a model has lowered it (resource.setrlimit), for all models of its pool"


def _limits() -> dict[str, int]:
    # Of the data the host itself changes the soft one: memory_brake.py.
    return {name: resource.getrlimit(getattr(resource, name))[name == "RLIMIT_DATA"] for name in _NAMES}


def _is_lower(value: int, before: int) -> bool:
    return value != resource.RLIM_INFINITY and (before == resource.RLIM_INFINITY or value < before)


def _shown(limit: int) -> str:
    return "unlimited" if limit == resource.RLIM_INFINITY else str(limit)


def _most() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _left() -> int:
    try:
        return _most() - len(os.listdir("/proc/self/fd")) + 1  # which has one while it looks
    except OSError:
        return 0


def _wanted(unserved: int) -> int:
    return min(_KEPT, _most() // 4) + OF_WORKER + unserved * (OF_WORKER - _BEFORE_IT_IS_SERVED)


def _scarcity() -> str:
    return (
        f"the pool host has {max(0, _left())} of {_most()} file descriptors left, and keeps some for its "
        f"models' files; a worker needs {OF_WORKER}"
    )
