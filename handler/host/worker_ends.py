"""Ends workers: their shim or model is gone, their load or a call failed, or TorchServe has left them."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from interpool.handler import failed_load
from interpool.handler.failed_load import ShimsEnding, take_note
from interpool.handler.host import control
from interpool.handler.host.call_timeouts import CallTimeouts, GivenUp
from interpool.handler.host.device_loss import DeviceLoss
from interpool.handler.host.events import Events
from interpool.handler.host.interpreter_pool import Pool
from interpool.handler.host.isolation import Isolation
from interpool.handler.host.served_models import End, ServedModels
from interpool.handler.host.worker import Worker
from interpool.handler.host.worker_set import WorkerSet
from interpool.handler.torchserve import ACCEPT_TIMEOUT_S

logger = logging.getLogger("interpool.host")


@dataclass
class WorkerEnds:
    """Ends workers, and releases them after their last call. For the host's control thread."""

    events: Events
    pool: Pool
    workers: WorkerSet
    models: ServedModels
    isolation: Isolation
    device_loss: DeviceLoss
    take_reports: Callable[[], None]  # handles the interpreters' reports that have come
    calls: CallTimeouts = field(default_factory=CallTimeouts)
    is_leaving: bool = False  # the host leaves, and ends calls itself

    def watch(self, worker: Worker) -> None:
        """End a worker that the pool serves, once its connection has ended or its load has failed."""
        self.events.watch(worker.done_fd, lambda: self._on_done(worker))
        if worker.failed_load is not None:
            self.events.watch(worker.failed_load, lambda: self._on_failed_load(worker))

    def end(self, worker: Worker, why: End) -> None:
        """End a registered worker; if it has ended already, do nothing."""
        self.take_reports()
        if self.workers.of_peer(worker.peer) is not worker:
            return  # a call that was given up has ended its model's workers
        model = self.models.get(worker.registration.model_dir)
        if model is not None and not worker.registration.beside:
            model.worker_ended(worker.registration.address, worker.reported_end or why)
        self.events.unwatch(worker.peer)
        if worker.listener is not None:
            self.events.unwatch(worker.listener)
        self.workers.remove(worker)
        if worker.own_state or self.workers.is_last_of_model(worker):
            self.pool.end_state(worker.registration.model_dir, worker.model_state, own=worker.own_state)
        for other in self.workers.registered:
            if other.registration.beside == worker.registration.pid:
                control.send(other.peer, "gone")  # that worker answers the requests that it has, and ends
        if not worker.end():
            self.workers.ending.add(worker)
            if not self.is_leaving:
                self.end_calls()

    def end_calls(self) -> None:
        """End the calls that take longer than their limit, or whose answer no client waits for."""
        for given_up in self.calls.look([*self.workers.registered, *self.workers.ending]):
            self._lose(given_up)

    def end_stale(self) -> None:
        """End workers that TorchServe has forgotten, and those to which it never connected.

        TorchServe 0.12 may restart a worker of a model that is being scaled down. That worker goes on even
        when the model is unregistered, which removes the model's directory.
        """
        for worker in self.workers.registered:
            if worker.registration.beside:
                continue  # it ends after the worker of TorchServe's, once it has answered
            if not os.path.isdir(worker.registration.model_dir):
                logger.info("worker %d: its model is gone", worker.registration.pid)
                self.end(worker, End.MODEL_GONE)
            elif worker.state == "listening" and time.monotonic() - worker.since > ACCEPT_TIMEOUT_S:
                logger.warning("worker %d: TorchServe did not connect", worker.registration.pid)
                self.end(worker, End.NOT_CONNECTED)

    def _lose(self, call: GivenUp) -> None:
        worker, model_dir = call.worker, call.worker.registration.model_dir
        if worker not in self.workers.ending:
            worker.tell(f"interpool: {call.reason}\n")
            self.end(worker, End.GIVEN_UP)
        self.workers.ending.discard(worker)
        self.workers.lost.add(worker)
        worker.lose()
        if self.isolation.note_lost_call(model_dir, call.reason):
            self._end_others(model_dir)

    def _end_others(self, model_dir: str, but: Worker | None = None) -> None:
        """End the workers of a model that is left to TorchServe's own workers."""
        for other in self.workers.of_model(model_dir):
            if other is not but:
                self.end(other, End.LEFT_TO_STOCK)

    def _on_done(self, worker: Worker) -> None:
        """Release a worker whose connection has ended, and whose descriptors no call uses any more."""
        self.events.unwatch(worker.done_fd)
        if worker.failed_load is not None:
            self.events.unwatch(worker.failed_load)
        if worker not in self.workers.ending and worker not in self.workers.lost:
            self.end(worker, End.DISCONNECTED)
        self.workers.ending.discard(worker)
        self.workers.lost.discard(worker)
        worker.release()
        self.device_loss.note_end(worker)

    def _on_failed_load(self, worker: Worker) -> None:
        """Do what the worker's interpreter asks for, which waits for that (failed_load.py)."""
        assert worker.failed_load is not None
        said = worker.failed_load.recv(failed_load.MESSAGE_LIMIT)
        model_dir, reason = worker.registration.model_dir, said[1:].decode(errors="replace")
        if said.startswith(failed_load.OWN_PROCESS):
            self.isolation.leave_to_stock(model_dir, reason)
            # This worker has an answer to send, and then closes its connection itself.
            self._end_others(model_dir, but=worker)
            take_note(worker.failed_load)
            return
        if said.startswith(failed_load.OWN_INTERPRETERS):
            self.isolation.isolate(worker, reason)
            take_note(worker.failed_load)
            return
        shims = ShimsEnding(worker.failed_load)
        for other in self.workers.of_model(model_dir):
            if other is worker or said == failed_load.WHOLE_MODEL:
                other.answering = other.connection is not None
                self._end_shim(other, shims)
        shims.answer_if_done()

    def _end_shim(self, worker: Worker, shims: ShimsEnding) -> None:
        ended = shims.wait_for(worker.registration.pid)
        if ended is not None:
            self.events.watch(ended, partial(self._on_shim_ended, ended, shims))
            control.send(worker.peer, "bye")

    def _on_shim_ended(self, ended: int, shims: ShimsEnding) -> None:
        self.events.unwatch(ended)
        shims.ended(ended)
