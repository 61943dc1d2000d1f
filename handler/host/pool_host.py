"""The pool host: one process that serves the pooled models of one TorchServe.

This is the control plane: one thread with one selector. It accepts TorchServe's connections and hands them to
the pool (``InterpreterManager.serve``). It does not see a connection again until that ends. No model code and
no torch run in this interpreter.

This file is the thread's loop: it dispatches events and runs what is due. start.py starts the process.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import socket
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from interpool.handler.config import OWN_POOL, HostSettings
from interpool.handler.errors import HostStartError
from interpool.handler.frontend import shim
from interpool.handler.host import memory, rotated_log
from interpool.handler.host.call_timeouts import PAUSE_S as CALL_PAUSE_S
from interpool.handler.host.control import DRAIN_REQUEST, STACKS_REQUEST, STATUS_REQUEST, receive
from interpool.handler.host.control_socket import ControlSocket
from interpool.handler.host.device_loss import DeviceLoss
from interpool.handler.host.events import Events
from interpool.handler.host.home_repair import ServerHome
from interpool.handler.host.interpreter_pool import Pool
from interpool.handler.host.interpreter_reports import InterpreterReports
from interpool.handler.host.isolation import Isolation
from interpool.handler.host.memory_brake import MemoryBrake
from interpool.handler.host.model_placement import Keeper
from interpool.handler.host.pool_growth import PoolGrowth
from interpool.handler.host.registration import Registrar, close_all
from interpool.handler.host.resource_limits import Limits
from interpool.handler.host.runtime_directory import RuntimeDirectory
from interpool.handler.host.served_models import End, ServedModels
from interpool.handler.host.span_export import exporter_of_environment
from interpool.handler.host.status_answer import StatusAnswer
from interpool.handler.host.survival import Survival
from interpool.handler.host.worker_ends import WorkerEnds
from interpool.handler.host.worker_set import WorkerSet
from interpool.handler.torchserve import addresses_of, most_response_bytes

if TYPE_CHECKING:
    from interpool.handler.direct.traffic import DirectState

TICK_S = 1.0
FILLING_TICK_S = 0.1  # an interpreter that has just become ready must not wait for a request to load a model
LOOK_S = 0.5  # between two looks at the interpreters' state, however many events there are
MODEL_CHECK_S = 5.0
LEAVE_TIMEOUT_S = 10.0
FAILED_LINGER_S = 1.0
TOUCH_S = 3600.0

_QUESTIONS = (STATUS_REQUEST, DRAIN_REQUEST, STACKS_REQUEST, shim.FOLLOW_REQUEST)

logger = logging.getLogger("interpool.host")


class PoolHost:
    """The control plane; everything runs in the thread of ``run``.

    Args:
        runtime_dir: the directory in which shims find the host; the caller holds its lock.
        name: the pool's name.
        frontend_pid: the process id of TorchServe's frontend; without TorchServe, that of this process.
        pool: the pool, whose start is under way or over.
        ahead: whether the host starts before a worker needs it. It then waits for its first worker as long as
            TorchServe lives, and leaves if that worker has another environment.
        settings: the host's settings; None: those of the environment.
        server: the server's name in metrics and traces; "": TorchServe's inference address.
        lasting: whether the host stays without workers, until ``leave``.
        direct: returns the state of the direct address; None: there is no such address.
        trouble: returns why that address is not served, or "".
        drain: called once the server is about to end.

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
        server: str = "",
        lasting: bool = False,
        direct: Callable[[], DirectState | None] | None = None,
        trouble: Callable[[], str] | None = None,
        drain: Callable[[], None] | None = None,
    ) -> None:
        settings = settings or HostSettings.of_environment()
        server = server or addresses_of(frontend_pid)[0].rpartition("://")[2]
        most_answer_bytes = 0 if frontend_pid == os.getpid() else most_response_bytes(frontend_pid)
        self._drain_direct = drain or (lambda: None)
        self._patience_s = math.inf if lasting else settings.idle_exit_s
        self._idle_since = time.monotonic()
        self._pause_s = 0.0
        self._next_look = 0.0
        self._next_touch = 0.0
        self._next_model_check = 0.0
        self._reason_to_leave = ""
        self._server_is_gone = False

        self._pool = pool
        if ahead:
            pool.resize(*settings.pool_size(None))
        survival = self._survival = Survival()
        events = self._events = Events(survival, self._on_wake)
        limits = self._limits = Limits()
        spans = self._spans = exporter_of_environment(server, name)
        workers = self._workers = WorkerSet()
        models = self._models = ServedModels()
        is_own = name.startswith(OWN_POOL)
        isolation = self._isolation = Isolation(runtime_dir, settings, pool, models, is_own)
        device_loss = self._device_loss = DeviceLoss(isolation, survival)
        own_limit = settings.memory_mb << 20 if settings.memory_mb is not None else None
        free_memory = partial(memory.free_part, own_limit)
        self._brake = MemoryBrake(partial(memory.rooms, own_limit))
        self._brake.start()
        keeper = self._keeper = Keeper(settings.idle_model_s, events.wake, free_memory)
        growth = self._growth = PoolGrowth(pool, models, free_memory)
        try:
            self._frontend = os.pidfd_open(frontend_pid)
        except ProcessLookupError:
            raise HostStartError("TorchServe's frontend is gone") from None
        events.watch(self._frontend, self._on_frontend_gone)
        self._directory = RuntimeDirectory(runtime_dir)
        self._home = ServerHome()
        control = self._control = ControlSocket(runtime_dir, events, limits, survival, self._on_message)
        announce = self._control.announce
        reports = self._reports = InterpreterReports(
            events, pool, workers, models, isolation, device_loss, keeper, spans, announce, free_memory
        )
        ends = self._ends = WorkerEnds(events, pool, workers, models, isolation, device_loss, reports.take)
        self._registrar = Registrar(
            name,
            settings,
            events,
            survival,
            limits,
            control,
            pool,
            workers,
            models,
            isolation,
            ends,
            reports,
            most_answer_bytes,
            ahead,
            self.leave,
        )
        describe_direct, trouble = direct or (lambda: None), trouble or str
        self._status = StatusAnswer(
            name, server, frontend_pid, pool, workers, models, growth, limits, describe_direct, trouble
        )

    def leave_on_sigterm(self) -> None:
        """Shut down on SIGTERM; for the main thread only."""
        self._events.wake_on_signals()
        signal.signal(signal.SIGTERM, self._on_sigterm)

    def leave(self, reason: str) -> None:
        """Have ``run`` return soon. Any thread."""
        self._reason_to_leave = reason
        self._events.wake()

    def run(self) -> str:
        """Serve until TorchServe is gone, or no worker has needed the pool for a while; returns why."""
        self._pool.call_when_started(self._events.wake)
        while not self._reason_to_leave:
            self._survival.attempt(self._turn, "a turn of the host was cut short")
            if reason := self._survival.end_turn():
                self._reason_to_leave = reason
                logger.error("the pool host cannot go on: %s", reason)
        logger.info("leaving: %s", self._reason_to_leave)
        self._leave()
        return self._reason_to_leave

    def close(self) -> None:
        """Release what ``run`` leaves to the end of the process, for a process that outlives the host."""
        self._brake.stop()
        self._events.close()
        os.close(self._frontend)
        self._directory.close()

    def _turn(self) -> None:
        """Handle what has come, and do what is due."""
        self._events.react(self._pause_s)
        self._tick()
        pause = FILLING_TICK_S if self._pool.is_filling else TICK_S
        self._pause_s = min(pause, CALL_PAUSE_S) if self._ends.calls.is_busy else pause

    # ---- events -----------------------------------------------------------------------------

    def _on_wake(self) -> None:
        self._registrar.take_trials()
        if not self._pool.take_start():
            return
        if self._pool.error:
            # All workers that were started together must get the reason.
            self._patience_s = FAILED_LINGER_S
        self._registrar.admit_waiting()

    def _on_sigterm(self, _signal: int, _frame: object) -> None:
        self._reason_to_leave = "SIGTERM"

    def _on_frontend_gone(self) -> None:
        self._server_is_gone = True
        self._reason_to_leave = "TorchServe is gone"

    def _on_message(self, peer: socket.socket) -> None:
        try:
            message, descriptors = receive(peer)
        except BlockingIOError:
            return
        worker = self._workers.of_peer(peer)
        if worker is None and message and message not in _QUESTIONS:
            self._registrar.register(peer, message, descriptors)
            return
        close_all(descriptors)
        if worker is not None:
            logger.info("worker %d: its shim is gone", worker.registration.pid)
            self._ends.end(worker, End.SHIM_GONE)
        elif message == STACKS_REQUEST:
            self._control.detach(peer)
            self._status.send_stacks(peer)
        elif message == shim.FOLLOW_REQUEST:
            self._control.follow(peer)
            for each in self._workers.registered:
                self._control.announce(each)
        else:
            if message == DRAIN_REQUEST:
                self._status.is_draining = True
                self._drain_direct()
            if message:
                self._status.send(peer)
            self._control.drop(peer)

    # ---- what is due ------------------------------------------------------------------------

    def _tick(self) -> None:
        now = time.monotonic()
        waits = self._registrar.awaits_first_ahead and not self._pool.error
        if self._workers.registered or self._workers.ending or self._pool.is_starting or waits:
            self._idle_since = now
        # A process that has connected may become a worker, so the host stays for it. It may also ask for the
        # status again and again for ever, so it does not restart the idle time.
        elif now - self._idle_since >= self._patience_s and not self._control.is_asked:
            self._reason_to_leave = self._pool.error or "no worker needs the pool"
        if failure := self._pool.final_failure:
            # TorchServe restarts the workers. These start the next host, which has none of these troubles.
            self._reason_to_leave = f"no interpreter is left, and none starts: {failure}"
        self._device_loss.look()
        self._ends.end_calls()
        if now >= self._next_touch:
            self._next_touch = now + TOUCH_S
            self._directory.touch()
        if now >= self._next_look:
            self._next_look = now + LOOK_S
            self._limits.look(self._workers.unserved)
            self._growth.look()
            self._pool.write_held_lines()
            self._remove_stock_models()
        if now >= self._next_model_check:
            self._next_model_check = now + MODEL_CHECK_S
            self._check_models()
        self._pool.drop_ended_states()
        if self._pool.has_grown():
            self._keeper.prompt()
        self._keeper.keep(self._pool.manager, self._workers.registered)

    def _check_models(self) -> None:
        """End and forget what belongs to models that were unregistered, and look after the host's files."""
        self._ends.end_stale()
        self._pool.forget_models()
        self._isolation.forget_models()
        self._models.forget()
        self._reports.failing.forget_gone()
        if not self._server_is_gone:  # else its launcher may be removing the home
            self._home.look()
        rotated_log.look()

    def _remove_stock_models(self) -> None:
        """Remove the models that only TorchServe's own workers serve from those that this host serves.

        The host hears nothing of these workers, so it cannot know whether such a model is ready.
        """
        for model_dir in self._models.names():
            is_stock = self._isolation.left_to_stock(model_dir, ordinary=False)
            if is_stock and not self._workers.of_model(model_dir):
                self._models.remove(model_dir)

    # ---- the end ----------------------------------------------------------------------------

    def _leave(self) -> None:
        """End the workers, and remove the sockets and the runtime directory.

        Interpreters are not finalised: with torch inside, only the end of the process is safe.
        """
        self._ends.is_leaving = True
        self._directory.lock()
        attempt = self._survival.attempt  # each step by itself: the fault that ends the host may stop one
        self._control.close()
        for worker in self._workers.registered:
            end = partial(self._ends.end, worker, End.SHUTDOWN)
            attempt(end, f"a worker of {worker.model} could not be ended")
        deadline = time.monotonic() + LEAVE_TIMEOUT_S
        while self._workers.ending and time.monotonic() < deadline:
            if attempt(partial(self._events.react, 0.1), "the last calls could not be waited for"):
                break
            attempt(self._ends.end_calls, "the last calls could not be ended")
        if not self._workers.ending and not self._workers.lost:  # else a call may still write to that socket
            attempt(self._reports.close, "the interpreters' reports could not be left")
        if self._spans is not None:
            attempt(self._spans.close, "the last traces could not be exported")
        self._directory.unlock(remove=self._server_is_gone or not self._isolation.has_marks)
        if self._server_is_gone:
            attempt(self._home.leave, "the server's home could not be removed")
