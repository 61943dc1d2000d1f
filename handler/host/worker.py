"""One worker in the pool host: a shim, the socket TorchServe connects to, its log pipes.

A worker is *waiting* until the pool's interpreters run. It is then *listening*, and *connected* when
TorchServe has connected. It is *ending* while its last call still runs, and *lost* if the host has given up
that call (call_timeouts.py). If its archive is ordinary, it is *tried* between listening and connected
(ordinary_trial.py).
"""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import os
import socket
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from interpool.handler.config import HostSettings, ModelSettings, model_manifest, startup_timeout
from interpool.handler.errors import SettingsError, WorkerRefused
from interpool.handler.frontend.shim import ARGUMENT_SEPARATOR, file_identity
from interpool.handler.host import control
from interpool.handler.host.resource_limits import is_shortage
from interpool.handler.host.served_models import End
from interpool.handler.host.service_entry import (
    LOAD_LIMIT_S,
    SERVICE_FUNCTION,
    SERVICE_MODULE,
    TRACED_FUNCTION,
    TRACED_MODULE,
)
from interpool.handler.signature_policy import SignaturePolicy
from interpool.handler.worker_reports import Report
from interpool.handler.worker_token import WorkerToken

if TYPE_CHECKING:
    from interpool.handler.host.host_state import WorkerState
    from interpool.native._native import Channel, Connection
    from interpool.native.pool.manager import InterpreterManager


@dataclass(eq=False)
class Worker:
    """A registered worker. All methods are for the host's one control thread."""

    peer: socket.socket
    registration: control.Registration
    stdio: tuple[int, int]
    host: HostSettings
    ordinary: bool  # whether its archive is ordinary, and not hermetic
    most_answer_bytes: int = 0  # the largest answer that TorchServe takes; 0: without TorchServe, any
    reports: int = -1  # descriptor for the interpreters' reports on it; see worker_reports.py
    started: bool = False  # it has its model, and has said so to TorchServe
    reported_end: End | None = None  # why it ends, if an interpreter has reported that
    settings: ModelSettings = field(init=False)
    refusal: str = field(init=False, default="")  # why its settings are refused
    model: str = field(init=False, default="?")  # name and version; at first the archive's name
    unwatched: bool = False  # see WorkerToken
    traced: bool = False  # its calls make spans
    own_directory: bool = True  # each thread of this process can have a working directory of its own
    state: str = "waiting"
    model_state: int = 0  # see WorkerToken.state
    since: float = field(default_factory=time.monotonic)
    listener: socket.socket | None = None
    stream: socket.socket | None = None  # TorchServe's connection, until the pool has it
    channel: Channel | None = None  # in place of a stream, if the direct address has registered the worker
    connection: Connection | None = None
    done_fd: int = -1
    failed_load: socket.socket | None = None  # readable once its load has failed; see failed_load.py
    answering: bool = False  # the load's refusal is still to be sent
    _failed_load_end: socket.socket | None = None  # the interpreter's end of that
    _socket_file: tuple[int, int] | None = None
    _handed_over: bool = False
    _loading: dict[int, float] = field(init=False, default_factory=dict)  # by interpreter: when it began
    _loaded_at: float = 0.0  # by time.monotonic()

    def __post_init__(self) -> None:
        """Read the model's settings.

        Refused settings stop the load and not the worker: TorchServe answers the registration with the
        load's status code.

        Raises:
            SettingsError: the settings cannot be read, because the process lacks memory or descriptors.
        """
        _nowhere()  # opened now: ``end`` may need it when no descriptor is left
        model_dir = self.registration.model_dir
        try:
            manifest = model_manifest(model_dir)
            self.model = f"{manifest.get('modelName')}/{manifest.get('modelVersion')}"
            self.settings = ModelSettings.of_model(model_dir)
        except SettingsError as error:
            if is_shortage(error):
                raise
            self.settings = ModelSettings()
            self.refusal = str(error)

    def listen(self) -> socket.socket:
        """Listen at the address to which TorchServe is going to connect.

        Raises:
            WorkerRefused: nothing can listen there; the message says why.
            OSError: no socket can be made.
        """
        kind, _, place = self.registration.address.partition(":")
        listener = socket.socket(socket.AF_UNIX if kind == "unix" else socket.AF_INET)
        listener.setblocking(False)
        try:
            if kind == "unix":
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(place)
                listener.bind(place)
                self._socket_file = file_identity(place)
            else:
                host, _, port = place.rpartition(":")
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind((host, int(port)))
            listener.listen(1)
        except (OSError, ValueError) as error:
            listener.close()
            raise WorkerRefused(f"cannot listen on {self.registration.address}: {error}") from error
        self.listener = listener
        self._enter("listening")
        return listener

    def connect(self) -> bool:
        """Take the channel on which the direct address sends requests; False if TorchServe is to connect.

        Raises:
            WorkerRefused: there is no such channel.
        """
        from interpool.native import _native

        if not self.direct:
            return False
        self.channel = _native.Channel.find(self.registration.channel)
        if self.channel is None:
            raise WorkerRefused(f"channel {self.registration.channel} is not open in this process")
        self._enter("tried")
        return True

    def accept(self) -> bool:
        """Take the connection of TorchServe's frontend; False if it has not connected.

        The listener is then closed, as TorchServe connects once in a worker's life.
        """
        if self.listener is None:
            return False
        try:
            self.stream, _ = self.listener.accept()
        except (BlockingIOError, ConnectionError):
            return False
        self._close_listener()
        self.stream.setblocking(True)
        self._enter("tried")
        return True

    def serve(self, manager: InterpreterManager) -> None:
        """Let the pool serve the connection from now on."""
        self.done_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.failed_load, self._failed_load_end = socket.socketpair()
        stream, self.stream = self.stream, None
        channel, self.channel = self.channel, None
        asked_by = stream.detach() if stream is not None else channel
        assert asked_by is not None
        self.connection = manager.serve(
            asked_by,
            module=TRACED_MODULE if self.traced else SERVICE_MODULE,
            function=TRACED_FUNCTION if self.traced else SERVICE_FUNCTION,
            worker=self.token().as_text(),
            affinity=self.registration.model_dir,
            done_fd=self.done_fd,
            pinned=self.own_state,
            share=self.host.share_of(self.settings, manager.min_size),
        )
        self._enter("connected")

    def hand_over(self, reason: str) -> None:
        """Have the shim's process take the connection and become TorchServe's own worker.

        The direct address has no connection of TorchServe's, and gets the reason alone.
        """
        passing = [] if self.stream is None else [self.stream.fileno()]
        self._handed_over = control.send(self.peer, "stock", reason, passing)

    def token(self) -> WorkerToken:
        """The facts about this worker that ``backend.service`` needs."""
        stdout, stderr = self.stdio
        return WorkerToken(
            stdout=stdout,
            stderr=stderr,
            metrics_config=self.registration.metrics_config,
            refusal=self.refusal,
            tracebacks=self.settings.tracebacks,
            failed_load=self._failed_load_end.fileno() if self._failed_load_end else -1,
            policy=SignaturePolicy.of(self.host, self.settings),
            ordinary=self.ordinary,
            own_directory=self.own_directory,
            arguments=self.registration.arguments,
            pid=self.registration.pid,
            reports=self.reports,
            state=self.model_state,
            own_state=self.own_state,
            model_dir=self.registration.model_dir,
            unwatched=self.unwatched,
            most_answer_bytes=self.most_answer_bytes,
            notes=not self.direct,
            metrics=not self.direct or bool(self.registration.beside),
        )

    @property
    def direct(self) -> bool:
        """Whether the direct address registered this worker, and not a shim."""
        return bool(self.registration.channel)

    @property
    def call_limit_s(self) -> float | None:
        """Seconds that a call may take; None: as long as TorchServe waits."""
        return self.settings.call_limit if self.settings.call_limit is not None else self.host.call_limit_s

    @property
    def load_limit_s(self) -> float:
        """Seconds that a load of its model may take: as long as TorchServe waits, if the files say that."""
        with contextlib.suppress(SettingsError):
            return startup_timeout(self.registration.model_dir) or LOAD_LIMIT_S
        return LOAD_LIMIT_S

    def for_followers(self) -> str:
        """The JSON text with which a worker is registered beside this one; see direct/followed.py.

        Raises:
            SettingsError: the model's manifest cannot be read.
        """
        assert self.connection is not None
        manifest = model_manifest(self.registration.model_dir)
        return json.dumps(
            {
                "pid": self.registration.pid,
                "model_dir": self.registration.model_dir,
                "version": str(manifest.get("modelVersion") or "1.0"),
                "metrics_config": self.registration.metrics_config,
                "arguments": ARGUMENT_SEPARATOR.join(self.registration.arguments),
                "load_limit_s": self.load_limit_s,
                "load_command": base64.b64encode(self.connection.load_command).decode("ascii"),
            }
        )

    def be_called(self, name: str) -> None:
        """Take the name that its model is registered by, which TorchServe's load command gives."""
        self.model = f"{name}/{self.model.rpartition('/')[2]}"

    def note_load(self, report: Report) -> None:
        """Take a report on what comes before a call and is no part of it: a load, or a search for traces.

        An end counts only if its begin was reported.
        """
        if report.kind in ("loading", "searching"):
            self._loading[report.interpreter] = time.monotonic()
        elif report.kind in ("loaded", "load_failed", "searched") and self._loading.pop(
            report.interpreter, 0
        ):
            self._loaded_at = time.monotonic()

    def without_load(self, running: float) -> float:
        """The seconds that its call has run without the load that came first, if there was one.

        Args:
            running: seconds that the call has run.

        Returns:
            0 while the load still runs.
        """
        now = time.monotonic()
        # A report may be lost. So only a load that began during this call stops its clock.
        if any(since >= now - running for since in self._loading.values()):
            return 0.0
        return min(running, now - self._loaded_at)

    @property
    def own_state(self) -> bool:
        """Whether the worker shares its model's state with no other worker."""
        return self.settings.state == "worker"

    def tell(self, text: str) -> None:
        """Write to the worker's own stderr: TorchServe's model log."""
        with contextlib.suppress(OSError):
            os.write(self.stdio[1], text.encode())

    def end(self) -> bool:
        """End the shim and the connection to TorchServe; True if no call is left to wait for.

        A call that still runs may go on writing log lines. So its descriptors keep their numbers, but lead to
        the null device: TorchServe sees its pipes closed, and no other worker's pipe gets the numbers.
        """
        if self.state == "ending":
            return False
        self._enter("ending")
        self._close_listener()
        if not self._handed_over:
            self._remove_own_socket()
            control.send(self.peer, "bye")
        self.peer.close()
        if self.stream is not None:
            self.stream.close()
            self.stream = None
        if self.channel is not None:
            self.channel.close()
            self.channel = None
        for descriptor in self.stdio:
            os.dup2(_nowhere(), descriptor, inheritable=False)
        if self.connection is None:
            self.release()
            return True
        if not self.answering:
            self.connection.close()
        return False

    def lose(self) -> None:
        """Note that its call was given up. Its descriptors stay open, and nothing waits for the call."""
        self._enter("lost")

    def release(self) -> None:
        """Give back the last descriptors, once no call can use them any more."""
        for descriptor in (*self.stdio, self.done_fd):
            if descriptor >= 0:
                os.close(descriptor)
        for end in (self.failed_load, self._failed_load_end):
            if end is not None:
                end.close()
        self.connection = self.failed_load = self._failed_load_end = None
        self.stdio = (-1, -1)
        self.done_fd = -1

    def describe(self) -> WorkerState:
        """This worker's line in the host's status."""
        return {
            "pid": self.registration.pid,
            "model": self.model,
            "model_dir": self.registration.model_dir,
            "address": self.registration.address,
            "state": self.state,
            "started": self.started,
            "direct": self.direct,
            "seconds": round(time.monotonic() - self.since, 1),
        }

    def _enter(self, state: str) -> None:
        self.state = state
        self.since = time.monotonic()

    def _close_listener(self) -> None:
        if self.listener is not None:
            self.listener.close()
            self.listener = None

    def _remove_own_socket(self) -> None:
        """Remove the socket file, unless the name has passed to the next worker already."""
        kind, _, path = self.registration.address.partition(":")
        if kind == "unix":
            with contextlib.suppress(OSError):
                if self._socket_file and file_identity(path) == self._socket_file:
                    os.unlink(path)


@functools.cache
def _nowhere() -> int:
    return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
