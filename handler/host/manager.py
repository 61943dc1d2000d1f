"""What the host needs of the pool: the part of ``InterpreterManager`` that it calls, the service inside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

SERVICE_MODULE = "interpool.handler.backend.service"
SERVICE_FUNCTION = "WorkerService"
# That a load may take which the host wishes: what TorchServe gives its own where nobody says otherwise.
LOAD_LIMIT_S = 120.0
STDIO_MODULE = "interpool.handler.backend.stdio"


class Connection(Protocol):
    """What ``InterpreterManager.serve`` returns."""

    @property
    def load_command(self) -> bytes:
        """TorchServe's load command, the first message; empty before it came."""
        ...

    @property
    def running(self) -> float | None:
        """Seconds that the call which runs has taken; None if none runs."""
        ...

    def interrupt(self) -> bool:
        """Raise CallInterrupted in the model's code that the running call is in."""
        ...

    @property
    def importing(self) -> bool:
        """Whether the last interruption found it in an import, which is not interrupted."""
        ...

    @property
    def where(self) -> str:
        """The stack at which the last interruption found a call; "" where that cannot be known."""
        ...

    def give_up(self) -> int | None:
        """Leave the running call to itself and retire its interpreter, whose number this gives."""
        ...

    def close(self) -> None:
        """Shut the socket down; what the running call returns is thrown away."""


class Manager(Protocol):
    """The part of ``InterpreterManager`` that serving needs."""

    def serve(
        self,
        fd: int,
        *,
        module: str,
        function: str,
        worker: str,
        affinity: str,
        done_fd: int,
        pinned: bool,
        share: int | None,
    ) -> Connection:
        """Take over a connected socket; adds 1 to the eventfd ``done_fd`` after its end."""
        ...

    def stats(self) -> dict[str, object]:
        """The interpreters' state, JSON-able."""
        ...

    def forget(self, affinity: str, interpreter: int | None = None) -> None:
        """Prefer no interpreter for ``affinity`` any more, or not that one."""

    def all_instances(self) -> Sequence[Any]:
        """The interpreters, each of which can be leased by itself."""
        ...

    def isolate(self, affinity: str) -> None:
        """Lease for ``affinity`` only interpreters of its own, from now until it is forgotten."""

    def tell_all(self, module: str, function: str, argument: str) -> None:
        """Call ``module.function(argument)`` in every interpreter, beside whoever leases it."""

    def acquire_session(
        self, timeout: float | None = None, affinity: str = "", call_limit: float | None = None
    ) -> Any:
        """Lease a free interpreter; raises LeaseTimeoutError if none is free in time."""

    def dump_stacks(self) -> str:
        """The Python stacks of every interpreter, for people."""
        ...

    def close(self) -> None:
        """Lease no more; interpreters that nobody has leased serve a later manager."""

    def resize(self, min_size: int, max_size: int) -> None:
        """Have so many interpreters; what is missing is started in the background."""

    @property
    def min_size(self) -> int:
        """How many interpreters there are at least, once all are started."""
        ...

    def __len__(self) -> int: ...
