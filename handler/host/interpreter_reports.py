"""Takes what interpreters report about workers and models (worker_reports.py): loads, ends, traces, spans."""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass, field

from interpool.handler.host.device_loss import DeviceLoss
from interpool.handler.host.events import Events
from interpool.handler.host.failing_interpreters import FailingInterpreters
from interpool.handler.host.interpreter_pool import Pool
from interpool.handler.host.isolation import Isolation
from interpool.handler.host.model_placement import SHORT, Keeper
from interpool.handler.host.served_models import REPORTED_ENDS, ServedModels
from interpool.handler.host.span_export import SpanExport
from interpool.handler.host.worker import Worker
from interpool.handler.host.worker_set import WorkerSet
from interpool.handler.worker_reports import Report

logger = logging.getLogger("interpool.host")


@dataclass
class InterpreterReports:
    """The host's socket for reports. For the host's control thread."""

    events: Events
    pool: Pool
    workers: WorkerSet
    models: ServedModels
    isolation: Isolation
    device_loss: DeviceLoss
    keeper: Keeper
    spans: SpanExport | None  # None: calls make no spans
    announce: Callable[[Worker], None]  # called with a worker that has got its model
    free_memory: Callable[[], float]  # the part of the memory that is left, 0 to 1
    failing: FailingInterpreters = field(default_factory=FailingInterpreters)

    def __post_init__(self) -> None:
        """Open the socket. Interpreters write to one end as long as any worker's call may run."""
        self._reports, self._end = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._reports.setblocking(False)
        self.events.watch(self._reports, self.take)

    def fileno(self) -> int:
        """The descriptor to which interpreters write."""
        return self._end.fileno()

    def take(self) -> None:
        """Handle the reports that have come."""
        with contextlib.suppress(BlockingIOError):
            while True:
                report = Report.receive(self._reports)
                workers = self.workers.of_pid(report.pid)
                if report.kind == "spans":
                    self._export(next(iter(workers), None), report)
                    continue
                for worker in workers:
                    self._take(worker, report)

    def close(self) -> None:
        """Close the socket, once no call may write to it."""
        self.events.unwatch(self._reports)
        self._reports.close()
        self._end.close()

    def _take(self, worker: Worker, report: Report) -> None:
        worker.reported_end = REPORTED_ENDS.get(report.kind, worker.reported_end)
        if report.kind == "started" and not worker.started:
            worker.started = True
            self.announce(worker)
        worker.note_load(report)
        self.keeper.prompt()
        if report.model:
            worker.be_called(report.model)
        if model := self.models.get(worker.registration.model_dir):
            model.name = worker.model
            model.note(report)
        if report.kind in ("loaded", "load_failed"):
            self._note_load(worker, report)
        if report.kind == "traces":
            self.isolation.isolate(worker, report.reason)
        if report.kind == "device_lost":
            self.device_loss.note(worker, report.reason)

    def _note_load(self, worker: Worker, report: Report) -> None:
        """Retire an interpreter if models fail in it that load in others."""
        loaded = report.kind == "loaded"
        if not loaded and self.free_memory() < SHORT:
            return  # neither the model nor the interpreter is at fault
        for broken in self.failing.note(worker.registration.model_dir, report.interpreter, loaded=loaded):
            logger.error("interpreter %d is retired: models fail there that load in others", broken)
            self.pool.retire(broken)

    def _export(self, worker: Worker | None, report: Report) -> None:
        """Export the spans that an interpreter has made."""
        model = self.models.get(worker.registration.model_dir) if worker is not None else None
        if self.spans is not None:
            exemplars = model.exemplars if model is not None else None
            self.spans.take(report.spans, exemplars, self.pool.time_bounds)
