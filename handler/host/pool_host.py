"""The pool host: one process that serves the pooled models of one TorchServe.

This is the control plane: one thread with one selector. Shims register their workers here. The host accepts
TorchServe's connections and hands them to the pool (``InterpreterManager.serve``). It does not see a
connection again until that ends. No model code and no torch run in this interpreter.

start.py starts its process.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interpool.handler import failed_load
from interpool.handler.config import (
    OWN_POOL,
    HostSettings,
    ModelSettings,
    is_refused,
    model_manifest,
    own_pool,
)
from interpool.handler.errors import HostStartError, ServeError, SettingsError, WorkerRefused
from interpool.handler.failed_load import MESSAGE_LIMIT, OWN_PROCESS, WHOLE_MODEL, ShimsEnding, take_note
from interpool.handler.frontend import shim
from interpool.handler.host import control, memory, pool_growth, rotated_log
from interpool.handler.host.call_timeouts import PAUSE_S as CALL_WATCH_S
from interpool.handler.host.call_timeouts import CallTimeouts, GivenUp
from interpool.handler.host.control_socket import ControlSocket
from interpool.handler.host.events import Events
from interpool.handler.host.failing_interpreters import FailingInterpreters
from interpool.handler.host.home_repair import ServerHome
from interpool.handler.host.interpreter_pool import Pool
from interpool.handler.host.launch_environment import was_started_like
from interpool.handler.host.memory_brake import MemoryBrake
from interpool.handler.host.model_placement import SHORT, Keeper
from interpool.handler.host.models_apart import ModelsApart
from interpool.handler.host.ordinary_models import OrdinaryModels
from interpool.handler.host.resource_limits import Limits
from interpool.handler.host.served_models import REPORTED_ENDS, End, ServedModels
from interpool.handler.host.span_export import exporter_of_environment
from interpool.handler.host.status import memory_of
from interpool.handler.host.survival import Survival
from interpool.handler.host.worker import Worker
from interpool.handler.host.worker_set import WorkerSet
from interpool.handler.torchserve import ACCEPT_TIMEOUT_S, addresses_of, most_response_bytes
from interpool.handler.worker_reports import Report

if TYPE_CHECKING:
    from interpool.handler.direct.traffic import DirectState
    from interpool.handler.host.host_state import HostState

TICK_S = 1.0
FILLING_TICK_S = 0.1  # an interpreter that has just become ready must not wait for a request to load a model
LOOK_S = 0.5  # between two looks at the interpreters' state, however many events there are
MODEL_CHECK_S = 5.0
LEAVE_TIMEOUT_S = 10.0
FAILED_LINGER_S = 1.0
KEEP_S = 3600.0
LAST_ANSWER_S = 1.0  # in which the worker whose call found that the GPU is lost can still answer
LOST_STEP = 10  # the log says how many interpreters are gone, each time that so many more are
# The memory of retired interpreters stays in use. If so many are retired, a new model that has left traces
# before gets a process of its own.
MOST_LOST = 8

_NO_DEVICE = "this process can use its GPU no more, and the next one can"

logger = logging.getLogger("interpool.host")


class PoolHost:
    """The control plane; everything runs in the thread of ``run``.

    Args:
        runtime_dir: the directory in which shims find the host; the caller holds its lock.
        name: the pool's name.
        frontend_pid: the process id of TorchServe's frontend.
        pool: the pool, whose start is under way or over.
        ahead: whether the host starts before a worker needs it. It then waits for its first worker as long as
            TorchServe lives, and leaves if that worker has another environment.
        settings: the host's settings; None: those of the environment.
        lasting: whether the host stays without workers, until ``leave``.
        direct: returns the state of the direct address; None: there is no such address.

    Raises:
        HostStartError: TorchServe's frontend is gone.
        SettingsError: the environment has a setting that is refused.
        OSError: the control socket cannot be opened.
    """

    def __init__(
        self,
        runtime_dir: Path,
        name: str,
        frontend_pid: int,
        pool: Pool,
        *,
        ahead: bool = False,
        settings: HostSettings | None = None,
        lasting: bool = False,
        direct: Callable[[], DirectState | None] | None = None,
        drain: Callable[[], None] | None = None,
    ) -> None:
        self._describe_direct = direct or (lambda: None)
        self._drain_direct = drain or (lambda: None)
        self._runtime_dir = runtime_dir
        self._name = name
        self._settings = settings or HostSettings.of_environment()
        self._most_answer_bytes = most_response_bytes(frontend_pid)
        self._server = addresses_of(frontend_pid)[0].partition("://")[2]
        self._spans = exporter_of_environment(self._server, name)
        self._survival = Survival()
        self._events = Events(self._survival, self._on_wake)
        self._workers = WorkerSet()
        self._ordinary = OrdinaryModels(runtime_dir)
        self._calls = CallTimeouts()
        self._trouble = ""
        self._lost_interpreters = 0
        self._apart = ModelsApart(runtime_dir)
        self._is_own = name.startswith(OWN_POOL)
        self._models = ServedModels()
        self._patience_s = math.inf if lasting else self._settings.idle_exit_s
        self._idle_since = time.monotonic()
        self._pause_s = 0.0
        self._next_look = 0.0
        self._next_keep = 0.0
        self._next_model_check = 0.0
        self._reason_to_leave = ""
        self._server_is_gone = False
        self._is_draining = False  # the server is about to end
        self._lost_device = 0.0  # by time.monotonic(): when the process lost its GPU; 0: it has not
        self._started = time.time()
        self._began = time.monotonic()
        self._limits = Limits()

        # Interpreters write to one end as long as any worker's call may run.
        self._reports, self._reports_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._reports.setblocking(False)
        self._events.watch(self._reports, self._take_reports)
        self._pool = pool
        self._awaits_first_worker = True
        self._is_ahead = ahead
        if ahead:
            pool.resize(*self._settings.pool_size(None))
        own = self._settings.memory_mb
        own_limit = own << 20 if own is not None else None
        self._free_memory = partial(memory.free_part, own_limit)
        self._brake = MemoryBrake(partial(memory.rooms, own_limit))
        self._brake.start()
        self._failing = FailingInterpreters()
        self._keeper = Keeper(self._settings.idle_model_s, self._events.wake, self._free_memory)
        try:
            self._frontend = os.pidfd_open(frontend_pid)
        except ProcessLookupError:
            raise HostStartError("TorchServe's frontend is gone") from None
        self._events.watch(self._frontend, self._on_frontend_gone)
        self._hold = shim.hold(str(runtime_dir))
        self._home = ServerHome()
        self._control = ControlSocket(
            runtime_dir, self._events, self._limits, self._survival, self._on_message
        )

    def leave_on_sigterm(self) -> None:
        """Shut down on SIGTERM; for the main thread only."""
        self._events.wake_on_signals()
        signal.signal(signal.SIGTERM, self._on_sigterm)

    def leave(self, reason: str) -> None:
        """Have ``run`` return soon. Any thread."""
        self._reason_to_leave = reason
        self._events.wake()

    def run(self) -> None:
        """Serve until TorchServe is gone, or no worker has needed the pool for a while."""
        self._pool.call_when_started(self._events.wake)
        while not self._reason_to_leave:
            self._survival.attempt(self._turn, "a turn of the host was cut short")
            if reason := self._survival.end_turn():
                self._reason_to_leave = reason
                logger.error("the pool host cannot go on: %s", reason)
        logger.info("leaving: %s", self._reason_to_leave)
        self._leave()

    def close(self) -> None:
        """Release what ``run`` leaves to the end of the process, for a process that outlives the host."""
        self._brake.stop()
        self._events.close()
        os.close(self._frontend)
        os.close(self._hold)

    def _turn(self) -> None:
        """Handle what has come, and do what is due."""
        self._events.react(self._pause_s)
        self._tick()
        pause = FILLING_TICK_S if self._pool.is_filling else TICK_S
        self._pause_s = min(pause, CALL_WATCH_S) if self._calls.is_busy else pause

    def _keep_files(self) -> None:
        """Date the host's files anew, so that no program that removes old files from /tmp removes them.

        systemd spares sockets by their names, but it knows this one by another name.
        """
        with contextlib.suppress(OSError):
            for path in (self._runtime_dir.parent, self._runtime_dir, *self._runtime_dir.iterdir()):
                os.utime(path, follow_symlinks=False)

    # ---- events -----------------------------------------------------------------------------

    def _on_wake(self) -> None:
        for worker in self._ordinary.take_trials():
            if worker.state == "tried":
                self._for(worker, self._take_up)
        if not self._pool.take_start():
            return
        if self._pool.error:
            # All workers that were started together must get the reason.
            self._patience_s = FAILED_LINGER_S
        for worker in self._workers.registered:
            if worker.state == "waiting":
                self._for(worker, self._admit)

    def _on_sigterm(self, _signal: int, _frame: object) -> None:
        self._reason_to_leave = "SIGTERM"

    def _on_frontend_gone(self) -> None:
        self._server_is_gone = True
        self._reason_to_leave = "TorchServe is gone"

    def _for(self, worker: Worker, step: Callable[[Worker], None]) -> None:
        """Do a step for a worker. If it fails, that worker ends with the reason, and others go on."""
        error = self._survival.attempt(partial(step, worker), f"{worker.model} could not be served")
        if error is not None:
            reason = self._limits.explain(error)
            worker.tell(f"interpool: the pool host could not serve this worker: {reason}\n")
            self._refuse(worker.peer, reason)

    def _on_message(self, peer: socket.socket) -> None:
        try:
            message, descriptors = control.receive(peer)
        except BlockingIOError:
            return
        worker = self._workers.of_peer(peer)
        if worker is not None:
            _close_all(descriptors)
            logger.info("worker %d: its shim is gone", worker.registration.pid)
            self._end(worker, End.SHIM_GONE)
        elif message in (control.STATUS_REQUEST, control.DRAIN_REQUEST):
            _close_all(descriptors)
            if message == control.DRAIN_REQUEST:
                self._is_draining = True
                self._drain_direct()
            self._answer_status(peer)
        elif message == control.STACKS_REQUEST:
            _close_all(descriptors)
            self._answer_stacks(peer)
        elif message == shim.FOLLOW_REQUEST:
            _close_all(descriptors)
            self._control.follow(peer)
            for each in self._workers.registered:
                self._tell_followers(each)
        elif message:
            try:
                self._register(peer, message, descriptors)
            except Exception as error:
                # Else its shim would wait for an answer, and TorchServe for the end of its log.
                _close_all(descriptors)
                self._refuse(peer, f"the pool host could not take this worker: {self._limits.explain(error)}")
                raise
        else:
            self._control.drop(peer)

    def _on_frontend(self, worker: Worker) -> None:
        if worker.listener is None or self._pool.manager is None:
            return
        self._events.unwatch(worker.listener)
        self._for(worker, self._accept)

    def _accept(self, worker: Worker) -> None:
        if worker.accept():
            self._take_up(worker)
        elif worker.listener is not None:
            self._events.watch(worker.listener, lambda: self._on_frontend(worker))

    def _take_up(self, worker: Worker) -> None:
        """Serve a worker to which TorchServe has connected, or first try whether the pool can."""
        assert self._pool.manager is not None
        if worker.settings.isolation == "own":
            self._pool.manager.isolate(worker.registration.model_dir)
        if worker.ordinary and not self._ordinary.is_tried(worker):
            self._ordinary.try_out(worker, self._pool.manager, self._events.wake)
        else:
            self._serve_or_hand_over(worker)

    def _serve_or_hand_over(self, worker: Worker) -> None:
        model_dir = worker.registration.model_dir
        reason = self._ordinary.left_to_stock(model_dir, ordinary=True) if worker.ordinary else ""
        if reason:
            worker.hand_over(reason)
            self._end(worker, End.LEFT_TO_STOCK)
            return
        assert self._pool.manager is not None
        worker.serve(self._pool.manager)
        if worker.ordinary:
            control.send(worker.peer, "served")
        self._events.watch(worker.done_fd, lambda: self._on_done(worker))
        if worker.failed_load is not None:
            self._events.watch(worker.failed_load, lambda: self._on_failed_load(worker))

    def _take_reports(self) -> None:
        """Handle the interpreters' reports on loads, on workers' ends and on spans."""
        with contextlib.suppress(BlockingIOError):
            while True:
                report = Report.receive(self._reports)
                if report.kind == "spans":
                    self._export(report)
                    continue
                for worker in self._workers.of_pid(report.pid):
                    self._take_report(worker, report)

    def _take_report(self, worker: Worker, report: Report) -> None:
        worker.reported_end = REPORTED_ENDS.get(report.kind, worker.reported_end)
        if report.kind == "started" and not worker.started:
            worker.started = True
            self._tell_followers(worker)
        worker.note_load(report)
        self._keeper.prompt()
        if report.model:
            worker.be_called(report.model)
        if model := self._models.get(worker.registration.model_dir):
            model.name = worker.model
            model.note(report)
        if report.kind in ("loaded", "load_failed"):
            self._note_load(worker, report)
        if report.kind == "traces":
            self._isolate(worker, report.reason)
        if report.kind == "device_lost":
            self._lose_device(worker, report.reason)

    def _export(self, report: Report) -> None:
        """Export the spans that an interpreter has made."""
        worker = next(iter(self._workers.of_pid(report.pid)), None)
        model = self._models.get(worker.registration.model_dir) if worker is not None else None
        if self._spans is not None:
            exemplars = model.exemplars if model is not None else None
            self._spans.take(report.spans, exemplars, self._pool.time_bounds)

    def _tell_followers(self, worker: Worker) -> None:
        """Tell the followers that a worker of TorchServe's has its model."""
        if worker.direct or not worker.started or worker.connection is None:
            return
        try:
            text = worker.for_followers()
        except SettingsError as error:  # its manifest is gone: it is being unregistered
            logger.info("%s is not announced: %s", worker.model, error)
            return
        for follower in self._control.followers:
            if not control.send(follower, "worker", text, worker.stdio):
                self._control.drop(follower)

    def _note_load(self, worker: Worker, report: Report) -> None:
        """Retire an interpreter if models fail in it that load in others."""
        loaded = report.kind == "loaded"
        if not loaded and self._free_memory() < SHORT:
            return  # neither the model nor the interpreter is at fault
        for broken in self._failing.note(worker.registration.model_dir, report.interpreter, loaded=loaded):
            logger.error("interpreter %d is retired: models fail there that load in others", broken)
            self._pool.retire(broken)

    def _on_failed_load(self, worker: Worker) -> None:
        """End shims, as the worker's load has failed: its interpreter waits for their end."""
        assert worker.failed_load is not None
        said = worker.failed_load.recv(MESSAGE_LIMIT)
        if said.startswith(OWN_PROCESS):
            self._leave_to_stock(worker, said.removeprefix(OWN_PROCESS).decode(errors="replace"))
            take_note(worker.failed_load)
            return
        if said.startswith(failed_load.OWN_INTERPRETERS):
            self._isolate(worker, said.removeprefix(failed_load.OWN_INTERPRETERS).decode(errors="replace"))
            take_note(worker.failed_load)
            return
        whole_model = said == WHOLE_MODEL
        shims = ShimsEnding(worker.failed_load)
        for other in self._workers.registered:
            same = whole_model and other.registration.model_dir == worker.registration.model_dir
            if other is worker or same:
                other.answering = other.connection is not None
                self._end_shim(other, shims)
        shims.answer_if_done()

    def _leave_to_stock(self, worker: Worker, reason: str) -> None:
        """Leave a worker's model to TorchServe's own workers, and end the model's other workers.

        This worker still has an answer to send. It then closes its connection itself.
        """
        self._ordinary.leave(worker.registration.model_dir, reason)
        self._end_workers(worker.registration.model_dir, but=worker)

    def _end_workers(self, model_dir: str, but: Worker | None = None) -> None:
        for other in self._workers.of_model(model_dir):
            if other is not but:
                self._end(other, End.LEFT_TO_STOCK)

    def _remove_stock_models(self) -> None:
        """Remove the models that only TorchServe's own workers serve from those that this host serves.

        The host hears nothing of these workers, so it cannot know whether such a model is ready.
        """
        for model_dir in self._models.names():
            is_stock = self._ordinary.left_to_stock(model_dir, ordinary=False)
            if is_stock and not self._workers.of_model(model_dir):
                self._models.remove(model_dir)

    def _isolate(self, worker: Worker, reason: str) -> None:
        """Isolate the worker's model: from now on it shares no interpreter with another model."""
        model_dir = worker.registration.model_dir
        model = self._models.get(model_dir)
        if model is None or model.traces:
            return
        model.traces = reason
        self._pool.isolate(model_dir)
        served = "is served by interpreters of its own from now on"
        logger.warning("%s %s: %s", worker.model, served, reason)
        worker.tell(f"interpool: this model {served}, as {reason}\n")

    def _lose_device(self, worker: Worker, reason: str) -> None:
        """Leave once this worker has answered: every model that uses the GPU fails here from now on.

        The first model that reports the loss may have caused it. From the next host on, it has a process of
        its own. Models that report it later fail because of the same loss.
        """
        served = ""
        if not (self._is_own or self._lost_device):
            self._apart.remember(worker.registration.model_dir)
            served = f". {worker.model} is served by a process of its own from now on"
        logger.error("a call of %s failed: %s%s", worker.model, reason, served)
        worker.tell(f"interpool: {reason}{served}\n")
        self._lost_device = self._lost_device or time.monotonic()
        if worker.connection is None:  # no client waits for its answer
            self._survival.leave(_NO_DEVICE)

    def _end_shim(self, worker: Worker, shims: ShimsEnding) -> None:
        ended = shims.wait_for(worker.registration.pid)
        if ended is None:
            return

        def on_end() -> None:
            self._events.unwatch(ended)
            shims.ended(ended)

        self._events.watch(ended, on_end)
        control.send(worker.peer, "bye")

    def _on_done(self, worker: Worker) -> None:
        """Release a worker whose connection has ended, and whose descriptors no call uses any more."""
        self._events.unwatch(worker.done_fd)
        if worker.failed_load is not None:
            self._events.unwatch(worker.failed_load)
        if worker not in self._workers.ending and worker not in self._workers.lost:
            self._end(worker, End.DISCONNECTED)
        self._workers.ending.discard(worker)
        self._workers.lost.discard(worker)
        worker.release()
        if worker.reported_end is End.DEVICE_LOST:
            self._survival.leave(_NO_DEVICE)

    def _tick(self) -> None:
        now = time.monotonic()
        waits = self._is_ahead and self._awaits_first_worker and not self._pool.error
        if self._workers.registered or self._workers.ending or self._pool.is_starting or waits:
            self._idle_since = now
        # A process that has connected may become a worker, so the host stays for it. It may also ask for the
        # status again and again for ever, so it does not restart the idle time.
        elif now - self._idle_since >= self._patience_s and not self._control.is_asked:
            self._reason_to_leave = self._pool.error or "no worker needs the pool"
        if failure := self._pool.final_failure:
            # TorchServe restarts the workers. These start the next host, which has none of these troubles.
            self._reason_to_leave = f"no interpreter is left, and none starts: {failure}"
        if self._lost_device and now - self._lost_device >= LAST_ANSWER_S:
            self._survival.leave(_NO_DEVICE)
        self._end_calls()
        if now >= self._next_keep:
            self._next_keep = now + KEEP_S
            self._keep_files()
        if now >= self._next_look:
            self._next_look = now + LOOK_S
            self._limits.look(self._workers.unserved)
            self._relieve()
            self._pool.write_held_lines()
            self._remove_stock_models()
        if now >= self._next_model_check:
            self._next_model_check = now + MODEL_CHECK_S
            self._end_stale_workers()
            self._pool.forget_models()
            self._ordinary.forget_models()
            self._models.forget()
            self._failing.forget_gone()
            self._apart.forget_models()
            if not self._server_is_gone:  # else its launcher may be removing the home
                self._home.look()
            rotated_log.look()
        self._pool.drop_ended_states()
        if self._pool.has_grown():
            self._keeper.prompt()
        self._keeper.keep(self._pool.manager, self._workers.registered)

    # ---- calls that last ---------------------------------------------------------------------

    def _end_calls(self) -> None:
        """End the calls that take longer than their limit, or whose answer no client waits for."""
        for given_up in self._calls.look([*self._workers.registered, *self._workers.ending]):
            self._take_loss(given_up)

    def _take_loss(self, loss: GivenUp) -> None:
        worker, model_dir = loss.worker, loss.worker.registration.model_dir
        if worker not in self._workers.ending:
            worker.tell(f"interpool: {loss.reason}\n")
            self._end(worker, End.GIVEN_UP)
        self._workers.ending.discard(worker)
        self._workers.lost.add(worker)
        worker.lose()
        model = self._models.get(model_dir)
        if model is None or not model.lose(loss.reason):
            return
        self._ordinary.stop_serving(model_dir, model.give_up_reason, self._settings)
        self._end_workers(model_dir)

    def _relieve(self) -> None:
        """Grow beyond the maximum size while long calls hold all interpreters, and log what is wrong."""
        manager, size = self._pool.manager, self._pool.size
        if manager is None or size is None:
            return
        stats = manager.stats()
        each: Any = stats["interpreters"]
        lost = sum(one["state"] == "retired" for one in each)
        if lost // LOST_STEP > self._lost_interpreters // LOST_STEP:
            logger.warning("%d interpreters are gone, and their memory until this process ends", lost)
        self._lost_interpreters = lost
        wanted = pool_growth.relieved_size(stats, size, lambda: self._free_memory() >= SHORT)
        if wanted[1] != stats["max_size"]:
            logger.warning("the pool has at most %d interpreters from now on", wanted[1])
            manager.resize(*wanted)
        before, self._trouble = self._trouble, pool_growth.describe(stats, self._models.names())
        if self._trouble and not before:
            logger.error("%s", self._trouble)
        elif before and not self._trouble:
            logger.info("the pool serves all models again")

    # ---- workers ----------------------------------------------------------------------------

    def _register(self, peer: socket.socket, message: bytes, descriptors: list[int]) -> None:
        try:
            registration = control.parse_registration(message)
            if len(descriptors) != 2:
                lacks = self._limits.refusal(self._workers.unserved)
                raise WorkerRefused(lacks or "the worker passed no log descriptors")
            _require_model(registration.model_dir)
        except ServeError as error:
            _close_all(descriptors)
            self._refuse(peer, str(error))
            return
        if self._is_ahead and self._awaits_first_worker and not was_started_like(registration.pid):
            # Its connection ends only once this host listens no more. So the shim starts another host, and
            # does not come back to this one.
            self._reason_to_leave = "TorchServe's configuration gives its workers another environment"
            _close_all(descriptors)
            return
        # TorchServe gives a killed worker's socket name to the next worker at once. That may be before this
        # host has seen the end of the killed one.
        for other in self._workers.registered:
            if other.registration.address == registration.address:
                logger.info("worker %d is replaced", other.registration.pid)
                self._end(other, End.REPLACED)
        shortage = self._limits.refusal(self._workers.unserved)
        if reason := shortage or self._ordinary.parked(registration.model_dir):
            _close_all(descriptors)
            self._refuse(peer, reason)
            return
        if registration.beside and not self._workers.has_pid(registration.beside):
            _close_all(descriptors)
            control.send(peer, "gone")
            self._control.drop(peer)
            return
        # TorchServe's own worker cannot serve a model that is refused either: the model's load answers why.
        ordinary = not (shim.is_hermetic(registration.model_dir) or is_refused(registration.model_dir))
        if elsewhere := self._served_elsewhere(registration.model_dir, ordinary=ordinary):
            _close_all(descriptors)
            control.send(peer, *elsewhere)
            self._control.drop(peer)
            return
        stdout, stderr = descriptors
        worker = Worker(
            peer,
            registration,
            (stdout, stderr),
            self._settings,
            ordinary,
            self._most_answer_bytes,
            self._reports_end.fileno(),
        )
        descriptors.clear()  # they are the worker's from now on
        self._control.take(peer)
        self._workers.add(worker)
        worker.own_directory = self._ordinary.own_directory
        worker.traced = self._spans is not None
        worker.unwatched = self._is_own or worker.settings.unwatched
        model = self._models.register(registration.model_dir, worker.model)
        if not registration.beside:
            model.worker_began(registration.address)
        worker.model = model.name  # an earlier worker may know the name that it is registered by
        self._pool.serves(registration.model_dir)
        anew = self._workers.is_last_of_model(worker)
        worker.model_state = self._pool.state_of(registration.model_dir, own=worker.own_state, anew=anew)
        logger.info("worker %d: %s in %s", registration.pid, worker.model, registration.model_dir)
        if self._awaits_first_worker:
            self._awaits_first_worker = False
            wanted = worker.settings.interpreters
            self._pool.resize(*self._settings.pool_size(wanted, isolated=self._is_own))
        if self._pool.manager is not None or self._pool.error:
            self._for(worker, self._admit)

    def _admit(self, worker: Worker) -> None:
        """Listen for TorchServe and tell the shim so, or refuse the worker with the reason."""
        manager = self._pool.manager
        if manager is None:
            self._refuse(worker.peer, self._pool.error)
            return
        wanted = worker.settings.interpreters
        if wanted is not None and wanted != manager.min_size:
            worker.tell(
                f"interpool: this model asks for {wanted} interpreters, and pool {self._name!r} was "
                f"started with {manager.min_size}; it keeps these until it is restarted\n"
            )
        try:
            if worker.connect():
                control.send(worker.peer, "ready")
                self._take_up(worker)
                return
            listener = worker.listen()
        except WorkerRefused as error:
            self._refuse(worker.peer, str(error))
            return
        self._events.watch(listener, lambda: self._on_frontend(worker))
        if not control.send(worker.peer, "ready"):
            self._end(worker, End.SHIM_GONE)

    def _served_elsewhere(self, model_dir: str, *, ordinary: bool) -> tuple[str, str] | None:
        """The answer (see control.py) to a worker whose model this pool does not serve; None if it does."""
        if reason := self._ordinary.left_to_stock(model_dir, ordinary=ordinary):
            return "stock", reason
        is_new = self._models.get(model_dir) is None and not self._is_own
        if is_new and self._lost_interpreters >= MOST_LOST and self._left_traces_before(model_dir):
            self._apart.add(model_dir)
        return ("pool", own_pool(model_dir)) if model_dir in self._apart else None

    def _left_traces_before(self, model_dir: str) -> bool:
        with contextlib.suppress(SettingsError):
            if ModelSettings.of_model(model_dir).isolation == "auto":
                name = str(model_manifest(model_dir).get("modelName"))
                if traces := self._models.traces_before(name):
                    logger.warning("%s gets a process of its own, as before %s", name, traces)
                return bool(traces)
        return False

    def _refuse(self, peer: socket.socket, reason: str) -> None:
        logger.error("worker refused: %s", reason)
        control.send(peer, "refused", reason)
        worker = self._workers.of_peer(peer)
        if worker is None:
            self._control.drop(peer)
        else:
            self._end(worker, End.REFUSED)

    def _end(self, worker: Worker, why: End) -> None:
        self._take_reports()
        if self._workers.of_peer(worker.peer) is not worker:
            return  # the reports have ended it: its model goes to processes of its own
        model = self._models.get(worker.registration.model_dir)
        if model is not None and not worker.registration.beside:
            model.worker_ended(worker.registration.address, worker.reported_end or why)
        self._events.unwatch(worker.peer)
        if worker.listener is not None:
            self._events.unwatch(worker.listener)
        self._workers.remove(worker)
        if worker.own_state or self._workers.is_last_of_model(worker):
            self._pool.end_state(worker.registration.model_dir, worker.model_state, own=worker.own_state)
        for other in self._workers.registered:
            if other.registration.beside == worker.registration.pid:
                control.send(other.peer, "gone")  # that worker answers the requests that it has, and ends
        if not worker.end():
            self._workers.ending.add(worker)
            if not self._reason_to_leave:
                self._end_calls()

    def _end_stale_workers(self) -> None:
        """End workers that TorchServe has forgotten, and those to which it never connected.

        TorchServe 0.12 may restart a worker of a model that is being scaled down. That worker goes on even
        when the model is unregistered, which removes the model's directory.
        """
        for worker in self._workers.registered:
            if worker.registration.beside:
                continue  # it ends after the worker of TorchServe's, once it has answered
            if not os.path.isdir(worker.registration.model_dir):
                logger.info("worker %d: its model is gone", worker.registration.pid)
                self._end(worker, End.MODEL_GONE)
            elif worker.state == "listening" and time.monotonic() - worker.since > ACCEPT_TIMEOUT_S:
                logger.warning("worker %d: TorchServe did not connect", worker.registration.pid)
                self._end(worker, End.NOT_CONNECTED)

    # ---- status -----------------------------------------------------------------------------

    def _answer_status(self, peer: socket.socket) -> None:
        control.send_text(peer, json.dumps(self._describe()))
        self._control.drop(peer)

    def _answer_stacks(self, peer: socket.socket) -> None:
        """Answer in a thread of its own: it may wait for an interpreter's GIL, and only the answer waits."""
        manager = self._pool.manager
        self._control.detach(peer)

        def answer() -> None:
            with peer:
                control.send_text(peer, manager.dump_stacks() if manager is not None else "")

        threading.Thread(target=answer, name="stacks", daemon=True).start()

    def _describe(self) -> HostState:
        workers = [w.describe() for w in self._workers.all() if not w.registration.beside]
        beside = [w.describe() for w in self._workers.all() if w.registration.beside]
        return {
            "server": self._server,
            "pool": self._name,
            "pid": os.getpid(),
            "frontend_pid": int(self._runtime_dir.name.partition("-")[0]),
            "draining": self._is_draining,
            "uptime_s": round(time.monotonic() - self._began, 1),
            "interpreters": self._pool.manager.stats() if self._pool.manager else None,
            "models": sorted({worker["model_dir"] for worker in workers}),
            "workers": workers,
            "beside": beside,
            "direct": self._describe_direct(),
            "served": self._models.here(),
            "gone": self._models.gone(),
            "started": self._started,
            "memory": memory_of(os.getpid()),
            "trouble": "; ".join(filter(None, (self._trouble, self._limits.trouble))),
        }

    # ---- the end ----------------------------------------------------------------------------

    def _leave(self) -> None:
        """End the workers, and remove the sockets and the runtime directory.

        Interpreters are not finalised: with torch inside, only the end of the process is safe.
        """
        held = -1
        try:
            if self._has_its_directory():  # else the lock is not this host's, either
                held = shim.lock(str(self._runtime_dir))
        except (shim.Refused, OSError) as error:
            # The workers still learn of the end.
            logger.warning("leaving without the lock: %s", error)
        attempt = self._survival.attempt  # each step by itself: the fault that ends the host may stop one
        self._control.close()
        for worker in self._workers.registered:
            attempt(
                partial(self._end, worker, End.SHUTDOWN), f"a worker of {worker.model} could not be ended"
            )
        deadline = time.monotonic() + LEAVE_TIMEOUT_S
        while self._workers.ending and time.monotonic() < deadline:
            if attempt(partial(self._events.react, 0.1), "the last calls could not be waited for"):
                break
            attempt(self._end_calls, "the last calls could not be ended")
        if not self._workers.ending and not self._workers.lost:  # else a call may still write to that socket
            attempt(self._close_reports, "the interpreters' reports could not be left")
        if self._spans is not None:
            attempt(self._spans.close, "the last traces could not be exported")
        if held >= 0:
            is_needed = self._apart.remembers and not self._server_is_gone
            if not is_needed and self._has_its_directory():
                shutil.rmtree(self._runtime_dir, ignore_errors=True)
            os.close(held)
        if self._server_is_gone:
            attempt(self._home.leave, "the server's home could not be removed")

    def _has_its_directory(self) -> bool:
        """Whether the runtime directory is the one that this host holds; else it was removed meanwhile.

        The next host may then have made it again.
        """
        try:
            return os.path.samestat(os.stat(self._runtime_dir), os.fstat(self._hold))
        except OSError:
            return False

    def _close_reports(self) -> None:
        self._events.unwatch(self._reports)
        self._reports.close()
        self._reports_end.close()


def _require_model(model_dir: str) -> None:
    if not os.path.isdir(model_dir):
        raise WorkerRefused(f"the model's directory {model_dir} is gone: was it unregistered?")


def _close_all(descriptors: list[int]) -> None:
    while descriptors:
        os.close(descriptors.pop())
