"""The workers of a host: those that are registered, and those whose calls run after their registration."""

from __future__ import annotations

import socket

from interpool.handler.host import control
from interpool.handler.host.worker import Worker


class WorkerSet:
    """A worker is registered, then ending while a call of it runs, then lost if the host gave that call up.

    For the control thread.
    """

    def __init__(self) -> None:
        self._registered: dict[socket.socket, Worker] = {}
        self.ending: set[Worker] = set()  # they have ended, with a call that still runs
        self.lost: set[Worker] = set()  # their last call was given up

    @property
    def registered(self) -> list[Worker]:
        """The registered workers: a copy, so that a worker may end during an iteration."""
        return list(self._registered.values())

    def all(self) -> list[Worker]:
        """The registered, the ending and the lost workers."""
        return [*self._registered.values(), *self.ending, *self.lost]

    def add(self, worker: Worker) -> None:
        """Register a worker."""
        self._registered[worker.peer] = worker

    def remove(self, worker: Worker) -> None:
        """Remove a worker from the registered ones."""
        del self._registered[worker.peer]

    def of_peer(self, peer: socket.socket) -> Worker | None:
        """The worker that was registered on this connection; None if there is none."""
        return self._registered.get(peer)

    def of_model(self, model_dir: str) -> list[Worker]:
        """The registered workers of a model."""
        return [each for each in self._registered.values() if each.registration.model_dir == model_dir]

    def of_pid(self, pid: int) -> list[Worker]:
        """The workers of the shim with this process id, whether registered, ending or lost."""
        return [worker for worker in self.all() if worker.registration.pid == pid]

    def has(self, pid: int, model_dir: str) -> bool:
        """Whether a worker of the shim with this process id is registered for the model in this directory."""
        return any(
            (worker.registration.pid, worker.registration.model_dir) == (pid, model_dir)
            for worker in self._registered.values()
        )

    @property
    def unserved(self) -> int:
        """The number of registered workers that no interpreter serves yet."""
        return sum(worker.connection is None for worker in self._registered.values())

    def is_last_of_model(self, worker: Worker) -> bool:
        """Whether no other registered worker of the model keeps the model's state."""
        return not any(_lives_beside(worker, other) for other in self.of_model(worker.registration.model_dir))


def _lives_beside(worker: Worker, other: Worker) -> bool:
    """Whether ``other`` is another worker of the same model, and has not ended without the host's notice."""
    if other.registration.beside and not worker.registration.beside:
        return False  # it ends with the worker of TorchServe's that it is beside
    return other is not worker and not control.has_ended(other.peer)
