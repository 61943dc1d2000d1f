"""Takes or refuses the workers that register, and has the pool serve those that it takes.

Once the pool has started, the host listens for TorchServe. When that has connected, the pool serves the
connection. If the model is ordinary, a trial comes first, and TorchServe's own worker may take over instead.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from interpool.handler.config import HostSettings, is_refused
from interpool.handler.errors import WorkerRefused
from interpool.handler.frontend import shim
from interpool.handler.host import control
from interpool.handler.host.control_socket import ControlSocket
from interpool.handler.host.events import Events
from interpool.handler.host.interpreter_pool import Pool
from interpool.handler.host.interpreter_reports import InterpreterReports
from interpool.handler.host.isolation import Isolation
from interpool.handler.host.launch_environment import was_started_like
from interpool.handler.host.resource_limits import Limits
from interpool.handler.host.served_models import End, ServedModels
from interpool.handler.host.survival import Survival
from interpool.handler.host.worker import Worker
from interpool.handler.host.worker_ends import WorkerEnds
from interpool.handler.host.worker_set import WorkerSet

logger = logging.getLogger("interpool.host")


@dataclass
class Registrar:
    """Takes workers, from their registration until the pool serves them. For the host's control thread."""

    name: str  # the pool's
    settings: HostSettings
    events: Events
    survival: Survival
    limits: Limits
    control: ControlSocket
    pool: Pool
    workers: WorkerSet
    models: ServedModels
    isolation: Isolation
    ends: WorkerEnds
    reports: InterpreterReports
    most_answer_bytes: int  # the largest answer that TorchServe takes; 0: without TorchServe, any
    awaits_first_ahead: bool  # the host was started before a worker needed it, and none has come yet
    leave: Callable[[str], None]  # has the host leave, for a reason
    awaits_first: bool = True  # no worker has been taken yet

    def register(self, peer: socket.socket, message: bytes, descriptors: list[int]) -> None:
        """Take a worker, or answer why not. The message's descriptors are the worker's then, or closed."""
        try:
            self._register(peer, message, descriptors)
        except WorkerRefused as error:
            self.refuse(peer, str(error))
        except Exception as error:
            # Else its shim would wait for an answer, and TorchServe for the end of its log.
            self.refuse(peer, f"the pool host could not take this worker: {self.limits.explain(error)}")
            raise
        finally:
            close_all(descriptors)

    def refuse(self, peer: socket.socket, reason: str) -> None:
        """Answer a worker's shim that the worker is refused, and end the worker if it was taken."""
        logger.error("worker refused: %s", reason)
        worker = self.workers.of_peer(peer)
        if worker is None:
            self._turn_away(peer, "refused", reason)
        else:
            control.send(peer, "refused", reason)
            self.ends.end(worker, End.REFUSED)

    def admit_waiting(self) -> None:
        """Admit the workers that waited for the pool's start, or refuse them if that has failed."""
        for worker in self.workers.registered:
            if worker.state == "waiting":
                self._attempt(self._admit, worker)

    def take_trials(self) -> None:
        """Serve or hand over the workers whose models were tried, if the trials have ended."""
        for worker in self.isolation.take_trials():
            if worker.state == "tried":
                self._attempt(self._take_up, worker)

    def _register(self, peer: socket.socket, message: bytes, descriptors: list[int]) -> None:
        registration = control.parse_registration(message)
        model_dir = registration.model_dir
        if len(descriptors) != 2:
            lacks = self.limits.refusal(self.workers.unserved)
            raise WorkerRefused(lacks or "the worker passed no log descriptors")
        if registration.beside and not self.workers.has(registration.beside, model_dir):
            self._turn_away(peer, "gone")
            return
        if not os.path.isdir(model_dir):
            raise WorkerRefused(f"the model's directory {model_dir} is gone: was it unregistered?")
        if self.awaits_first_ahead and not was_started_like(registration.pid):
            # Its connection ends only once this host listens no more. So the shim starts another host, and
            # does not come back to this one.
            self.leave("TorchServe's configuration gives its workers another environment")
            return
        # TorchServe gives a killed worker's socket name to the next worker at once. That may be before this
        # host has seen the end of the killed one.
        for other in self.workers.registered:
            if other.registration.address == registration.address:
                logger.info("worker %d is replaced", other.registration.pid)
                self.ends.end(other, End.REPLACED)
        if reason := self.limits.refusal(self.workers.unserved) or self.isolation.parked(model_dir):
            raise WorkerRefused(reason)
        # TorchServe's own worker cannot serve a model that is refused either: the model's load answers why.
        ordinary = not (shim.is_hermetic(model_dir) or is_refused(model_dir))
        if elsewhere := self.isolation.elsewhere(model_dir, ordinary=ordinary):
            self._turn_away(peer, *elsewhere)
            return
        stdio, reports = (descriptors[0], descriptors[1]), self.reports.fileno()
        worker = Worker(peer, registration, stdio, self.settings, ordinary, self.most_answer_bytes, reports)
        descriptors.clear()  # they are the worker's from now on
        self._take(worker)
        if self.pool.manager is not None or self.pool.error:
            self._attempt(self._admit, worker)

    def _turn_away(self, peer: socket.socket, kind: str, text: str = "") -> None:
        control.send(peer, kind, text)
        self.control.drop(peer)

    def _take(self, worker: Worker) -> None:
        registration = worker.registration
        self.control.take(worker.peer)
        self.workers.add(worker)
        worker.own_directory = self.isolation.own_directory
        worker.traced = self.reports.spans is not None
        worker.unwatched = self.isolation.is_own or worker.settings.unwatched
        model = self.models.register(registration.model_dir, worker.model)
        if not registration.beside:
            model.worker_began(registration.address)
        worker.model = model.name  # an earlier worker may know the name that it is registered by
        self.pool.serves(registration.model_dir)
        anew = self.workers.is_last_of_model(worker)
        worker.model_state = self.pool.state_of(registration.model_dir, own=worker.own_state, anew=anew)
        logger.info("worker %d: %s in %s", registration.pid, worker.model, registration.model_dir)
        if self.awaits_first:
            self.awaits_first = self.awaits_first_ahead = False
            wanted = worker.settings.interpreters
            self.pool.resize(*self.settings.pool_size(wanted, isolated=self.isolation.is_own))

    def _attempt(self, step: Callable[[Worker], None], worker: Worker) -> None:
        """Do a step for a worker. If it fails, that worker ends with the reason, and others go on."""
        error = self.survival.attempt(partial(step, worker), f"{worker.model} could not be served")
        if error is not None:
            reason = self.limits.explain(error)
            worker.tell(f"interpool: the pool host could not serve this worker: {reason}\n")
            self.refuse(worker.peer, reason)

    def _admit(self, worker: Worker) -> None:
        """Listen for TorchServe and answer the shim, or refuse the worker with the reason."""
        manager = self.pool.manager
        if manager is None:
            self.refuse(worker.peer, self.pool.error)
            return
        wanted = worker.settings.interpreters
        if wanted is not None and wanted != manager.min_size:
            worker.tell(
                f"interpool: this model asks for {wanted} interpreters, and pool {self.name!r} was "
                f"started with {manager.min_size}; it keeps these until it is restarted\n"
            )
        try:
            if worker.connect():
                control.send(worker.peer, "ready")
                self._take_up(worker)
                return
            listener = worker.listen()
        except WorkerRefused as error:
            self.refuse(worker.peer, str(error))
            return
        self.events.watch(listener, lambda: self._on_torchserve(worker))
        if not control.send(worker.peer, "ready"):
            self.ends.end(worker, End.SHIM_GONE)

    def _on_torchserve(self, worker: Worker) -> None:
        if worker.listener is None or self.pool.manager is None:
            return
        self.events.unwatch(worker.listener)
        self._attempt(self._accept, worker)

    def _accept(self, worker: Worker) -> None:
        if worker.accept():
            self._take_up(worker)
        elif worker.listener is not None:
            self.events.watch(worker.listener, lambda: self._on_torchserve(worker))

    def _take_up(self, worker: Worker) -> None:
        """Serve a worker to which TorchServe has connected, or first try whether the pool can."""
        assert self.pool.manager is not None
        self.isolation.apply_settings(worker, self.pool.manager)
        if worker.ordinary and not self.isolation.is_tried(worker):
            self.isolation.try_out(worker, self.pool.manager, self.events.wake)
        else:
            self._serve_or_hand_over(worker)

    def _serve_or_hand_over(self, worker: Worker) -> None:
        model_dir = worker.registration.model_dir
        reason = self.isolation.left_to_stock(model_dir, ordinary=True) if worker.ordinary else ""
        if reason:
            worker.hand_over(reason)
            self.ends.end(worker, End.LEFT_TO_STOCK)
            return
        assert self.pool.manager is not None
        worker.serve(self.pool.manager)
        if worker.ordinary:
            control.send(worker.peer, "served")
        self.ends.watch(worker)


def close_all(descriptors: list[int]) -> None:
    """Close the descriptors, and empty the list."""
    while descriptors:
        os.close(descriptors.pop())
