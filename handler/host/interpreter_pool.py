"""The host's pool of interpreters: it starts in the background, and unloads models that are gone.

The first interpreter serves as soon as it is ready, while the others start. The first model's first answer
waits for this module, so it imports little.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from interpool.handler.host.service_entry import LOAD_LIMIT_S, SERVICE_MODULE, STDIO_MODULE, TRACED_MODULE
from interpool.handler.host.span_export import are_made
from interpool.native.errors import InterpoolError

if TYPE_CHECKING:
    from interpool.native.pool.manager import InterpreterManager

LASTING_S = 0.5
CLOSE_S = 60.0

logger = logging.getLogger("interpool.host")


class Pool:
    """Starts one ``InterpreterManager``. Its methods are for the host's control thread.

    Attributes:
        manager: the manager of the interpreters; None until the first one is ready.
        error: why the pool did not start; "" if it did, or has not ended its start.
    """

    def __init__(self) -> None:
        self.manager: InterpreterManager | None = None
        self.error = ""
        self._began = time.monotonic()
        self._count = 0
        self._is_complete = False
        self._size: tuple[int, int] | None = None
        self._wake: Callable[[], None] = lambda: None
        self._starting: threading.Thread | None = None
        self._outcome: InterpreterManager | str | None = None
        self._model_dirs: set[str] = set()
        self._states: dict[str, int] = {}  # of each model whose workers share one state
        self._last_state = 0
        self._ended_states: list[int] = []

    @property
    def is_starting(self) -> bool:
        """Whether a start is under way."""
        return self._starting is not None

    def start(self) -> None:
        """Start the first interpreter in a thread, so that the control plane keeps answering."""
        with contextlib.suppress(Exception):  # the thread gets the same error, and reports it
            # Not in the thread: two threads that import the same packages can see half-made modules.
            from interpool.native import InterpreterManager  # noqa: F401
        self._starting = threading.Thread(target=self._start, name="start", daemon=True)
        self._starting.start()

    def call_when_started(self, wake: Callable[[], None]) -> None:
        """Have ``wake`` called, on any thread, once the start has ended; then ``take_start`` is due."""
        self._wake = wake
        if self._outcome is not None:  # the start had ended before
            wake()

    def resize(self, min_size: int, max_size: int) -> None:
        """Set the pool's size; interpreters that are missing are started in the background.

        Args:
            min_size: interpreters that the pool always has.
            max_size: the most interpreters that it may grow to.
        """
        self._size = (min_size, max_size)
        self._is_complete = False
        if self.manager is not None:
            self.manager.resize(*self._size)

    @property
    def is_filling(self) -> bool:
        """Whether interpreters of the minimum size still start; the log says when all are ready."""
        if self._is_complete or self.manager is None or self._size is None:
            return False
        self._is_complete = len(self.manager) >= self.manager.min_size
        if self._is_complete:
            took = time.monotonic() - self._began
            logger.info("all of %d interpreters are ready after %.2f s", len(self.manager), took)
        # After a failed start, the pool does not try again soon.
        return not self._is_complete and not self.manager.stats().get("failure")

    @functools.cached_property
    def time_bounds(self) -> tuple[float, ...]:
        """Upper bounds, in seconds, of the buckets in which the pool counts waits and leases."""
        return tuple(self.manager.stats()["time_bounds_s"]) if self.manager is not None else ()

    @property
    def size(self) -> tuple[int, int] | None:
        """The minimum and maximum size that ``resize`` has set; None before."""
        return self._size

    @property
    def retired(self) -> int:
        """The number of interpreters that are gone, and their memory until this process ends."""
        entries = self.manager.stats()["interpreters"] if self.manager is not None else []
        return sum(entry["state"] == "retired" for entry in entries)

    @property
    def final_failure(self) -> str:
        """Why the pool will never serve a call again; "" if it may."""
        if self.manager is None or len(self.manager):
            return ""
        stats = self.manager.stats()
        entries: Any = stats["interpreters"]
        is_any_left = any(one["state"] in ("free", "leased", "parked") for one in entries)
        return "" if stats["growing"] or is_any_left else str(stats["failure"])

    def take_start(self) -> bool:
        """Take the result of a start into ``manager`` or ``error``; True if there is a new one."""
        if self._starting is None or self._outcome is None:
            return False
        self._starting.join()
        self._starting = None
        if isinstance(self._outcome, str):
            self.error = self._outcome
        else:
            self.manager = self._outcome
            if self._size is not None:
                self.manager.resize(*self._size)
        return True

    def close(self) -> None:
        """Close the manager, once a start that is under way has ended; wait CLOSE_S for that at most.

        A later pool of this process takes its interpreters over.
        """
        if self._starting is not None:
            self._starting.join(CLOSE_S)
            self.take_start()
        if self.manager is not None:
            self.manager.close()

    def has_grown(self) -> bool:
        """Whether the number of interpreters has changed since the last call of this."""
        before, self._count = self._count, len(self.manager) if self.manager is not None else 0
        return self._count != before

    def serves(self, model_dir: str) -> None:
        """Note a model, so that ``forget_models`` forgets it when its directory is gone."""
        self._model_dirs.add(model_dir)

    def state_of(self, model_dir: str, *, own: bool, anew: bool) -> int:
        """The number of the model's state that a new worker's calls change.

        Args:
            model_dir: the model's directory.
            own: whether the state is for that worker alone.
            anew: whether no other worker of the model lives.
        """
        if anew and not own:
            self.end_state(model_dir, self._states.get(model_dir, 0))
        if not own and model_dir in self._states:
            return self._states[model_dir]
        self._last_state += 1
        if not own:
            self._states[model_dir] = self._last_state
        return self._last_state

    def end_state(self, model_dir: str, state: int, *, own: bool = False) -> None:
        """Note that no worker of the model has the state any more.

        Args:
            model_dir: the model's directory.
            state: the state's number.
            own: whether the state was for one worker alone.
        """
        if own or self._states.get(model_dir) == state:
            self._ended_states.append(state)
            if not own:
                del self._states[model_dir]
                self._leave_to_next_state(model_dir)

    def _leave_to_next_state(self, model_dir: str) -> None:
        """Have the pool forget which interpreters have the model, so that its next state is loaded ahead."""
        if self.manager is not None:
            for instance in self.manager.all_instances():
                self.manager.forget(model_dir, instance.interpreter_id)

    def drop_ended_states(self) -> None:
        """Have the interpreters unload models in states that have ended; a call that runs keeps its own."""
        if self._ended_states and self.manager is not None:
            ended = " ".join(map(str, self._ended_states))
            self._ended_states.clear()
            self.manager.tell_all(SERVICE_MODULE, "end_states", ended)
            threading.Thread(target=_sweep, args=(self.manager,), daemon=True).start()

    def write_held_lines(self) -> None:
        """Have long calls write the log lines that they hold back until their end (``backend.stdio``)."""
        if self.manager is not None:
            entries = self.manager.stats()["interpreters"]
            if any((entry["seconds"] or 0) >= LASTING_S for entry in entries):
                self.manager.tell_all(STDIO_MODULE, "write_held", "")

    def isolate(self, model_dir: str) -> None:
        """Have the model served by interpreters of its own, and unloaded in all others."""
        if self.manager is not None:
            self.manager.isolate(model_dir)
            threading.Thread(target=_leave, args=(self.manager, model_dir), daemon=True).start()

    def retire(self, interpreter: int) -> None:
        """Have the interpreter of that number replaced by another one, once it is free."""
        if self.manager is not None:
            threading.Thread(target=_retire, args=(self.manager, interpreter), daemon=True).start()

    def forget_models(self) -> None:
        """Have the interpreters unload models that were unregistered."""
        gone = {directory for directory in self._model_dirs if not os.path.isdir(directory)}
        self._model_dirs -= gone
        for directory in gone:
            self._states.pop(directory, None)
        if gone and self.manager is not None:
            for directory in gone:
                self.manager.forget(directory)
            threading.Thread(target=_sweep, args=(self.manager,), daemon=True).start()

    def _start(self) -> None:
        try:
            from interpool.native import InterpreterManager

            self._outcome = InterpreterManager(1, preload=[TRACED_MODULE if are_made() else SERVICE_MODULE])
            logger.info("the first interpreter is ready after %.2f s", time.monotonic() - self._began)
        except Exception as error:
            logger.exception("the first interpreter did not start")
            self._outcome = (
                f"the pool could not start an interpreter: {error}\n"
                "`interpool doctor` says what is missing on this machine"
            )
        self._wake()


def _retire(manager: InterpreterManager, interpreter: int) -> None:
    for instance in manager.all_instances():
        if instance.interpreter_id == interpreter:
            with contextlib.suppress(InterpoolError), instance.acquire_session() as session:
                session.global_("_interpool", "retire_interpreter")()


def _leave(manager: InterpreterManager, model_dir: str) -> None:
    entries = manager.stats()["interpreters"]
    sharing = [one["interpreter"] for one in entries if model_dir in one["affinities"] and not one["owner"]]
    for instance in manager.all_instances():
        if instance.interpreter_id in sharing:
            is_gone = False
            with (
                contextlib.suppress(InterpoolError),
                instance.acquire_session(call_limit=LOAD_LIMIT_S) as session,
            ):
                is_gone = session.global_(SERVICE_MODULE, "leave")(model_dir).to_value()
            if is_gone:
                manager.forget(model_dir, instance.interpreter_id)


def _sweep(manager: InterpreterManager) -> None:
    """Sweep all interpreters that are free.

    Leased ones sweep at their next call, and parked ones have no models.
    """
    entries: Any = manager.stats()["interpreters"]
    free = [one["interpreter"] for one in entries if one["state"] == "free"]
    for instance in manager.all_instances():
        if instance.interpreter_id not in free:
            continue
        with (
            contextlib.suppress(InterpoolError),
            instance.acquire_session(timeout=0.0, call_limit=LOAD_LIMIT_S) as session,
        ):
            session.global_(SERVICE_MODULE, "sweep")()
