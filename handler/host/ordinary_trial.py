"""Tries an ordinary model before the pool serves it: loads it in two interpreters, with its own load command.

A model that cannot be loaded there, or not twice in a process, is left to TorchServe's own workers. A model
that leaves traces in the first interpreter gets that one to itself, and is tried in no other.

The trial takes place after TorchServe has connected, and before the first byte of its load command is read.
So the connection can be handed on as it came, and the model's directory too. TorchServe waits meanwhile as
it does for a load. So a model whose load takes long is loaded once only.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interpool.handler.host.kept_directory import KeptDirectory
from interpool.handler.host.service_entry import LOAD_LIMIT_S, SERVICE_MODULE
from interpool.handler.host.worker import Worker
from interpool.handler.torchserve import MANIFEST
from interpool.native.errors import InterpreterRetiredError

if TYPE_CHECKING:
    from interpool.native.pool.manager import InterpreterManager

logger = logging.getLogger("interpool.host")

_PAUSE_S = 0.05
# Of the time that TorchServe waits for a load. If the first load takes longer, a second one might not end in
# time.
_PART_FOR_THE_FIRST = 1 / 3
# Files in the runtime directory, with an archive's identity in their names. They hold its directory's path.
_TRIED = "tried-"
_CRASHED = "crashed-"


class Trial:
    """One trial, in a thread of its own. Its attributes are for the host's control thread.

    Args:
        manager: of the pool's interpreters.
        first: the worker whose load command is used.
        marker: a file that exists during the trial, and names the model's directory. If the host crashes, the
            next host finds it.
        wake: called from the trial's thread at its end.

    Attributes:
        workers: the workers that wait for its end.
        reason: why the pool does not serve the model; "" if it does, None until the trial has ended.
        is_inconclusive: whether TorchServe closed the connection before the end. The trial then shows
            nothing, and the next worker's trial may.

    Raises:
        OSError: the process has no descriptors left.
    """

    def __init__(
        self, manager: InterpreterManager, first: Worker, marker: Path, wake: Callable[[], None]
    ) -> None:
        self.workers = [first]
        self.reason: str | None = None
        self.is_inconclusive = False
        self._manager = manager
        self._marker = marker
        self._wake = wake
        self._channel = first.channel
        self._stream: socket.socket | None = None
        with contextlib.ExitStack() as opened:  # closes what is open if no descriptor is left for the next
            if first.stream is not None:
                self._stream = opened.enter_context(socket.socket(fileno=os.dup(first.stream.fileno())))

            def keep(descriptor: int) -> int:
                opened.callback(os.close, descriptor)
                return descriptor

            # The load's output goes to the model log only after it has succeeded. Else the stock worker
            # prints it all again.
            self._output = [keep(os.memfd_create(name, os.MFD_CLOEXEC)) for name in ("stdout", "stderr")]
            self._log = [keep(os.dup(descriptor)) for descriptor in first.stdio]
            self._opened = opened.pop_all()  # for the thread from now on, which may end at once
        try:
            self._start(first)
        except BaseException:
            self._opened.close()
            raise

    def _start(self, first: Worker) -> None:
        token = replace(first.token(), stdout=self._output[0], stderr=self._output[1])
        self._token = token.as_text()
        self._said = [0, 0]
        self._limit_s = first.load_limit_s
        self._own_state = first.own_state
        self._directory = first.registration.model_dir
        self._thread = threading.Thread(target=self._run, name="trial", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            with KeptDirectory(self._directory) as kept:
                self._marker.write_bytes(os.fsencode(self._directory))
                reason = "it could not be tried"
                try:
                    reason = self._try()
                finally:
                    # If TorchServe has left, it may be removing the directory: the model may be unregistered.
                    if reason and not self._is_left():
                        kept.put_back()
            self.reason = reason
        except Exception as error:
            self.is_inconclusive = self._is_left()
            if self.is_inconclusive:
                logger.info("the trial of %s was given up, as its worker has ended", self._directory)
            else:
                logger.exception("the trial of %s failed", self._directory)
            self.reason = f"it could not be tried: {error}"
        finally:
            try:
                self._marker.unlink(missing_ok=True)
                self._say()
            finally:
                self._opened.close()
                self._wake()

    def _try(self) -> str:
        tried: list[int] = []
        began = time.monotonic()
        reason, apart = self._load_in_any(tried)
        if reason and apart:  # the obstacle is absent in an interpreter of its own
            logger.info("%s is tried by itself: %s", self._directory, apart)
            self._manager.isolate(self._directory)
            reason, _ = self._load_in_any(tried)
            if reason:
                self._manager.forget(self._directory)  # and its interpreter, as stock workers serve it
        took = time.monotonic() - began
        loaded = [] if reason else tried[-1:]
        self._said = [os.fstat(descriptor).st_size for descriptor in self._output]
        if lasts := took > self._limit_s * _PART_FOR_THE_FIRST:
            logger.info("%s is tried in one interpreter only: that took %.0f s", self._directory, took)
        while not (reason or apart or lasts) and (other := self._another(tried)) is not None:
            tried.append(other.interpreter_id)
            with (
                contextlib.suppress(InterpreterRetiredError),  # another model's trial retired it
                other.acquire_session(affinity=self._directory, call_limit=self._limit_s) as session,
            ):
                if (outcome := self._load(session)) is None:
                    continue
                reason, apart = outcome
                if reason:
                    reason += " (in a second interpreter of the process)"
                break
        unwanted = loaded
        if not reason:
            # The thread of a worker with a state of its own loads the model: what it sets is that thread's.
            unwanted = tried if self._own_state else []
        for instance in self._manager.all_instances():
            if instance.interpreter_id in unwanted:  # the others may serve or load another model by now
                with instance.acquire_session(call_limit=LOAD_LIMIT_S) as session:
                    session.global_(SERVICE_MODULE, "drop")(self._directory, True)
        return reason

    def _load_in_any(self, tried: list[int]) -> tuple[str, str]:
        while True:
            with self._manager.acquire_session(affinity=self._directory, call_limit=self._limit_s) as session:
                if (outcome := self._load(session)) is not None:
                    tried.append(session.interpreter_id)
                    return outcome

    def _another(self, tried: list[int]) -> Any | None:
        """An interpreter that is none of these and no model's own, a free one if there is any; or None.

        It waits for one that is being started.
        """
        while True:
            stats = self._manager.stats()
            entries: Any = stats["interpreters"]
            own = [one["interpreter"] for one in entries if one["owner"]]
            free = [one["interpreter"] for one in entries if one["state"] == "free"]
            others = [
                one for one in self._manager.all_instances() if one.interpreter_id not in (*tried, *own)
            ]
            for instance in others:
                if instance.interpreter_id in free:
                    return instance
            is_missing = len(self._manager) < self._manager.min_size
            if not is_missing or (stats["failure"] and not stats["growing"]) or self._is_left():
                return others[0] if others else None
            time.sleep(_PAUSE_S)

    def _is_left(self) -> bool:
        if self._stream is None:
            return self._channel is None or self._channel.is_closed
        try:
            return self._stream.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except OSError as error:
            return not isinstance(error, BlockingIOError)

    def _load(self, session: Any) -> tuple[str, str] | None:
        """Load the model; why that cannot be, and why it needs interpreters of its own; "" if neither.

        None: another model has changed this interpreter, which no other model gets from now on.
        """
        try_to_load = session.global_(SERVICE_MODULE, "try_to_load")
        source: int | bytes = b""
        if self._stream is not None:
            source = self._stream.fileno()
        elif self._channel is not None:
            source = self._channel.load_command
        outcome = try_to_load(self._token, source).to_value()
        if outcome is None:
            return None
        reason, apart, weights = outcome
        if not reason:
            logger.info("%s in interpreter %d: %s", self._directory, session.interpreter_id, weights)
        return " ".join(reason.split()), apart

    def _say(self) -> None:
        """Pass on the first load's output: to the model log, or to the host's log if the trial failed."""
        for output, log, length in zip(self._output, self._log, self._said, strict=True):
            text = os.pread(output, length, 0)
            if self.reason:
                logger.info("%s printed: %s", self._directory, text.decode(errors="replace"))
            else:
                with contextlib.suppress(OSError), open(log, "wb", buffering=0, closefd=False) as file:
                    file.write(text)


class Trials:
    """The trials of a host. Its methods are for the host's control thread.

    Args:
        runtime_dir: the host's runtime directory, which outlives a host that crashes.
    """

    def __init__(self, runtime_dir: Path) -> None:
        self._runtime_dir = runtime_dir
        self._running: dict[str, Trial] = {}
        for marker in runtime_dir.glob(f"{_TRIED}*"):
            _restore(marker)
            marker.replace(runtime_dir / marker.name.replace(_TRIED, _CRASHED))

    def ended_a_host(self, model_dir: str) -> bool:
        """Whether a host ended while it tried this archive; the errors are those of ``identity_of``."""
        return (self._runtime_dir / f"{_CRASHED}{identity_of(model_dir)}").exists()

    def start(self, worker: Worker, manager: InterpreterManager, wake: Callable[[], None]) -> None:
        """Start a trial of the worker's model, or have the worker wait for the trial that runs already.

        Args:
            worker: to which TorchServe has connected.
            manager: of the pool's interpreters.
            wake: called from the trial's thread at its end; then ``take_ended`` is due.

        Raises:
            OSError: the process has no descriptors left, or the model's files cannot be read.
        """
        directory = worker.registration.model_dir
        if directory in self._running:
            self._running[directory].workers.append(worker)
            return
        marker = self._runtime_dir / f"{_TRIED}{identity_of(directory)}"
        self._running[directory] = Trial(manager, worker, marker, wake)

    def take_ended(self) -> dict[str, Trial]:
        """Remove the trials that have ended, and return them by their models' directories."""
        ended = {each: trial for each, trial in self._running.items() if trial.reason is not None}
        for directory in ended:
            del self._running[directory]
        return ended


def _restore(marker: Path) -> None:
    """Restore the directory of a model in whose trial a host has died."""
    try:
        kept = KeptDirectory(os.fsdecode(marker.read_bytes()))
        kept.put_back()
        kept.remove()
    except (OSError, ValueError) as error:
        logger.warning("the directory of a model whose trial ended a host cannot be restored: %s", error)


def identity_of(model_dir: str) -> str:
    """A text that identifies an archive in any directory to which TorchServe extracts it.

    Raises:
        OSError: the directory or its manifest cannot be read.
    """
    files = sorted((entry.name, entry.stat().st_size) for entry in os.scandir(model_dir) if entry.is_file())
    text = (Path(model_dir) / MANIFEST).read_bytes() + repr(files).encode()
    return hashlib.sha256(text).hexdigest()[:16]
