"""An ordinary model is tried before it is served: loaded in two interpreters, with its own load command.

What cannot be loaded there, or not twice in a process, is left to TorchServe's own workers; what leaves
traces in the first has that one to itself, and is tried in no other. That is
found out between TorchServe's connecting and the first byte that is read of its load command, so that
its connection can be handed on as it came; and so is the model's directory. TorchServe waits meanwhile as it
does for a load: a model that takes long is loaded once.
"""

from __future__ import annotations

import contextlib
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
from interpool.native.errors import InterpreterRetiredError

if TYPE_CHECKING:
    from interpool.native.pool.manager import InterpreterManager

logger = logging.getLogger("interpool.host")

_PAUSE_S = 0.05
# Of the time that TorchServe waits for a load: with more gone, a second one might not end in what is left.
_PART_FOR_THE_FIRST = 1 / 3


class Trial:
    """One trial, in a thread of its own. Its attributes are for the host's control thread.

    Args:
        manager: the pool.
        first: the worker whose load command is used.
        marker: a file that stands there meanwhile: what a host finds that starts after a crash.
        wake: called from the trial's thread at its end.

    Attributes:
        workers: those that wait for its end.
        reason: why the pool does not serve the model, "" if it does; None until the end.
        came_to_nothing: whether TorchServe left before it was over; another worker's may be.
    """

    def __init__(
        self, manager: InterpreterManager, first: Worker, marker: Path, wake: Callable[[], None]
    ) -> None:
        self.workers = [first]
        self.reason: str | None = None
        self.came_to_nothing = False
        self._manager = manager
        self._marker = marker
        self._wake = wake
        self._channel = first.channel
        self._stream: socket.socket | None = None
        with contextlib.ExitStack() as opened:  # there may be no descriptor for the next one
            if first.stream is not None:
                self._stream = opened.enter_context(socket.socket(fileno=os.dup(first.stream.fileno())))

            def keep(descriptor: int) -> int:
                opened.callback(os.close, descriptor)
                return descriptor

            # What the load prints goes to the model log once it has succeeded: else the stock worker
            # says it all again.
            self._output = [keep(os.memfd_create(name, os.MFD_CLOEXEC)) for name in ("stdout", "stderr")]
            self._log = [keep(os.dup(descriptor)) for descriptor in first.stdio]
            self._opened = opened.pop_all()  # the thread's from now on: it may be over at once
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
        self._directory = first.registration.model_dir
        self._thread = threading.Thread(target=self._run, name="trial", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._marker.touch()
            with KeptDirectory(self._directory) as kept:
                reason = "it could not be tried"
                try:
                    reason = self._try()
                finally:
                    if reason:
                        kept.put_back()
            self.reason = reason
        except Exception as error:
            logger.exception("the trial of %s failed", self._directory)
            self.came_to_nothing = self._is_left()
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
        if reason and apart:  # what is in its way here is not in an interpreter of its own
            logger.info("%s is tried by itself: %s", self._directory, apart)
            self._manager.isolate(self._directory)
            reason, _ = self._load_in_any(tried)
        took = time.monotonic() - began
        self._said = [os.fstat(descriptor).st_size for descriptor in self._output]
        if lasts := took > self._limit_s * _PART_FOR_THE_FIRST:
            logger.info("%s is tried in one interpreter only: that took %.0f s", self._directory, took)
        while not (reason or apart or lasts) and (other := self._another(tried)) is not None:
            tried.append(other.interpreter_id)
            with (
                contextlib.suppress(InterpreterRetiredError),  # another's trial cost it: there are more
                other.acquire_session(affinity=self._directory, call_limit=self._limit_s) as session,
            ):
                reason, apart = self._load(session)
                if reason:
                    reason += " (in a second interpreter of the process)"
                break
        for instance in self._manager.all_instances() if reason else ():
            if instance.interpreter_id in tried:
                with instance.acquire_session(call_limit=LOAD_LIMIT_S) as session:
                    session.global_(SERVICE_MODULE, "drop")(self._directory, True)
        return reason

    def _load_in_any(self, tried: list[int]) -> tuple[str, str]:
        with self._manager.acquire_session(affinity=self._directory, call_limit=self._limit_s) as session:
            tried.append(session.interpreter_id)
            return self._load(session)

    def _another(self, tried: list[int]) -> Any | None:
        """One that is none of these, waited for if it is on its way; None if there is none for now."""
        while True:
            stats = self._manager.stats()
            entries: Any = stats["interpreters"]
            own = [one["interpreter"] for one in entries if one["owner"]]
            for instance in self._manager.all_instances():
                if instance.interpreter_id not in (*tried, *own):
                    return instance
            is_missing = len(self._manager) < self._manager.min_size
            if not is_missing or (stats["failure"] and not stats["growing"]) or self._is_left():
                return None
            time.sleep(_PAUSE_S)

    def _is_left(self) -> bool:
        if self._stream is None:
            return self._channel is None or self._channel.is_closed
        try:
            return self._stream.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except OSError as error:
            return not isinstance(error, BlockingIOError)

    def _load(self, session: Any) -> tuple[str, str]:
        """Why it cannot be loaded there, and why it is to have interpreters of its own; "" if not."""
        try_to_load = session.global_(SERVICE_MODULE, "try_to_load")
        source: int | bytes = b""
        if self._stream is not None:
            source = self._stream.fileno()
        elif self._channel is not None:
            source = self._channel.load_command
        reason, apart, weights = try_to_load(self._token, source).to_value()
        if not reason:
            logger.info("%s in interpreter %d: %s", self._directory, session.interpreter_id, weights)
        return " ".join(reason.split()), apart

    def _say(self) -> None:
        """Pass on what the first load printed, to the model log or, if it came to nothing, to the host's."""
        for output, log, length in zip(self._output, self._log, self._said, strict=True):
            text = os.pread(output, length, 0)
            if self.reason:
                logger.info("%s printed: %s", self._directory, text.decode(errors="replace"))
            else:
                with contextlib.suppress(OSError), open(log, "wb", buffering=0, closefd=False) as file:
                    file.write(text)
