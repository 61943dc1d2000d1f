"""Decides which interpreters keep which models: loads them ahead of need, and drops them when idle.

The rule, once a second:

- A model is *in use* if an interpreter has served it in the last ``INTERPOOL_IDLE_MODEL_S``. It should then
  be loaded in one interpreter more than it has workers, and in as many more as the pool has in reserve. So
  every batch finds an interpreter that has the model. A model that is not in use should be loaded in one.
- Missing models are loaded in the background, one at a time, in a free interpreter. Another interpreter must
  be free too, so that no request waits for the load. A load that failed is not tried again in that
  interpreter. The rule also applies at once when a worker has got its model, when an interpreter has become
  ready, and when a load has ended.
- A model that has interpreters of its own is never loaded ahead: its calls start these.
- Superfluous models are dropped in interpreters that have not served them for ``INTERPOOL_IDLE_MODEL_S``,
  the longest idle first.
- If less than ``SHORT`` of the memory is left (see memory.py), one model is dropped each second: the one that
  was idle longest. Models that another interpreter keeps too come first. Then come models that no request has
  asked for in ``LAST_COPY_S``. Nothing is loaded ahead until ``ENOUGH`` is left again.

A model that was dropped everywhere is loaded by its next request.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from interpool.handler.host import memory
from interpool.handler.host.service_entry import LOAD_LIMIT_S, SERVICE_MODULE
from interpool.handler.host.worker import Worker
from interpool.native.errors import CallTimeoutError, InterpoolError

if TYPE_CHECKING:
    from interpool.native.pool.manager import InterpreterManager
    from interpool.native.pool.states import PoolState

EVERY_S = 1.0
SHORT, ENOUGH = 0.1, 0.15
LAST_COPY_S = 60.0

logger = logging.getLogger("interpool.host")


@dataclass(frozen=True)
class Interpreter:
    """An interpreter of the pool that may be leased."""

    number: int
    is_free: bool
    idle_s: dict[str, float]  # seconds, by the directory of each model that it has served
    owner: str | None = None  # the directory of the only model that it serves; None: it serves any model


@dataclass(frozen=True)
class Action:
    """Load a model in an interpreter, or drop it there."""

    load: bool
    interpreter: int
    model_dir: str


def interpreters_of(stats: PoolState) -> list[Interpreter]:
    """The interpreters in what ``InterpreterManager.stats`` returns."""
    return [
        Interpreter(
            entry["interpreter"],
            entry["state"] == "free",
            dict(zip(entry["affinities"], entry["idle"], strict=True)),
            entry["owner"],
        )
        for entry in stats["interpreters"]
        if entry["state"] in ("free", "leased")
    ]


def plan(
    interpreters: Collection[Interpreter],
    workers: dict[str, int],
    idle_model_s: float,
    free_memory: float,
    failed: Collection[tuple[int, str]] = (),
    reserve: int = 0,
) -> list[Action]:
    """The actions that the rule above asks for now.

    Args:
        interpreters: those that may be leased.
        workers: the number of workers by their model's directory.
        idle_model_s: INTERPOOL_IDLE_MODEL_S, in seconds; 0: every model counts as in use.
        free_memory: the part of the memory that is left, 0 to 1.
        failed: pairs of an interpreter's number and the directory of a model whose load has failed there.
        reserve: the number of interpreters in reserve (``stats``).
    """
    copies = {
        model: sorted(
            (each for each in interpreters if model in each.idle_s), key=lambda one: one.idle_s[model]
        )
        for model in workers
    }
    if free_memory < SHORT:
        return list(_least_needed(copies))
    owners = {one.owner for one in interpreters if one.owner}
    wanted = {}
    for model, count in workers.items():
        in_use = bool(copies[model]) and (not idle_model_s or copies[model][0].idle_s[model] < idle_model_s)
        wanted[model] = min(len(interpreters), count + 1 + reserve) if in_use else 1
    drops = [
        Action(False, one.number, model)
        for model, having in copies.items()
        for one in having[wanted[model] :]
        if one.is_free and idle_model_s and one.idle_s[model] >= idle_model_s
    ]
    missing = [
        model for model, having in copies.items() if 0 < len(having) < wanted[model] and model not in owners
    ]
    free = [one for one in interpreters if one.is_free and not one.owner]
    if free_memory < ENOUGH or len(free) < 2:
        return drops
    for model in sorted(missing, key=lambda one: len(copies[one])):
        for one in sorted(free, key=lambda one: len(one.idle_s)):
            if model not in one.idle_s and (one.number, model) not in failed:
                return [*drops, Action(True, one.number, model)]
    return drops


def _least_needed(copies: dict[str, list[Interpreter]]) -> Iterator[Action]:
    spare, last = [], []
    for model, having in copies.items():
        for one in having:
            if one.is_free:
                idle = one.idle_s[model]
                if len(having) > 1:
                    spare.append((idle, one.number, model))
                elif idle >= LAST_COPY_S:
                    last.append((idle, one.number, model))
    for _idle, number, model in sorted(spare, reverse=True)[:1] or sorted(last, reverse=True)[:1]:
        yield Action(False, number, model)


@dataclass(frozen=True)
class _Step:
    """An action. ``run`` returns whether a model was loaded; ``close`` always follows."""

    run: Callable[[], bool]
    close: Callable[[], None] = lambda: None


class Keeper:
    """Does what ``plan`` says, on a thread of its own. Its methods are for the host's control thread.

    Args:
        idle_model_s: INTERPOOL_IDLE_MODEL_S, in seconds.
        wake: called on that thread after a load; then ``keep`` is due.
        free_memory: returns the part of the memory that is left, 0 to 1.
    """

    def __init__(
        self,
        idle_model_s: float,
        wake: Callable[[], None] = lambda: None,
        free_memory: Callable[[], float] = memory.free_part,
    ) -> None:
        self._idle_model_s = idle_model_s
        self._wake = wake
        self._free_memory = free_memory
        self._failed: set[tuple[int, str]] = set()
        self._lasting: set[str] = set()  # whose loads may cost interpreters
        self._thread: threading.Thread | None = None
        self._is_over = False  # a load has ended, and the next may begin
        self._next = 0.0

    def prompt(self) -> None:
        """Have the next ``keep`` apply the rule at once."""
        self._next = 0.0

    def keep(self, manager: InterpreterManager | None, workers: Collection[Worker]) -> None:
        """Start the actions that are due, unless the last plan is less than a second old or still runs.

        Args:
            manager: of the interpreters; None: they have not started yet, and nothing is done.
            workers: the registered workers.

        Raises:
            OSError: the process has no descriptors left.
        """
        now = time.monotonic()
        if self._is_over and self._thread is not None:
            self._thread.join()
            self._is_over = False
            self.prompt()
        if manager is None or now < self._next or (self._thread is not None and self._thread.is_alive()):
            return
        self._next = now + EVERY_S
        # A worker with a state of its own has its model in one interpreter only.
        serving = [worker for worker in workers if worker.state == "connected" and not worker.own_state]
        counts: dict[str, int] = {}
        for worker in serving:
            model_dir = worker.registration.model_dir
            counts[model_dir] = counts.get(model_dir, 0) + 1
        self._failed = {entry for entry in self._failed if entry[1] in counts}
        stats = manager.stats()
        todo = plan(
            interpreters_of(stats),
            counts,
            self._idle_model_s,
            self._free_memory(),
            self._failed | {(one.number, model) for one in interpreters_of(stats) for model in self._lasting},
            stats["reserve"],
        )
        steps = [step for action in todo if (step := self._step(manager, action, serving))]
        if steps:
            self._thread = threading.Thread(target=self._run, args=(steps,), name="keeper", daemon=True)
            try:
                self._thread.start()
            except BaseException:
                for step in steps:
                    step.close()
                raise

    def _run(self, steps: list[_Step]) -> None:
        loaded = False
        for step in steps:
            try:
                loaded = step.run() or loaded
            except Exception:
                logger.exception("a model could not be loaded ahead, or not be dropped")
            finally:
                step.close()
        if loaded:
            self._is_over = True
            self._wake()

    def _step(self, manager: InterpreterManager, action: Action, workers: list[Worker]) -> _Step | None:
        if not action.load:
            return _Step(lambda: _drop(manager, action))
        worker = next(each for each in workers if each.registration.model_dir == action.model_dir)
        load_command = worker.connection.load_command if worker.connection is not None else b""
        if not load_command:
            return None
        limit_s = worker.load_limit_s
        # The worker may end meanwhile, and other files may get its descriptors' numbers.
        with contextlib.ExitStack() as opened:
            stdout, stderr = (_copy_of(descriptor, opened) for descriptor in worker.stdio)
            token = replace(worker.token(), stdout=stdout, stderr=stderr, failed_load=-1).as_text()
            close = opened.pop_all().close

        def load() -> bool:
            try:
                loaded = _load(manager, action, token, load_command, limit_s)
            except CallTimeoutError:
                self._lasting.add(action.model_dir)
                raise
            if loaded is False:
                self._failed.add((action.interpreter, action.model_dir))
            if loaded:
                logger.info("interpreter %d loaded %s ahead", action.interpreter, action.model_dir)
            return loaded is True

        return _Step(load, close)


def _copy_of(descriptor: int, opened: contextlib.ExitStack) -> int:
    """A copy of a descriptor, which ``opened`` closes."""
    copy = os.dup(descriptor)
    opened.callback(os.close, copy)
    return copy


@contextlib.contextmanager
def _lease(manager: InterpreterManager, action: Action, affinity: str, limit_s: float) -> Iterator[Any]:
    """A session of the action's interpreter, or None if another call has it now."""
    session = None
    for instance in manager.all_instances():
        if instance.interpreter_id == action.interpreter:
            with contextlib.suppress(InterpoolError):
                session = instance.acquire_session(timeout=0.0, affinity=affinity, call_limit=limit_s)
    if session is None:
        yield None
    else:
        with session:
            yield session


def _drop(manager: InterpreterManager, action: Action) -> bool:
    with _lease(manager, action, affinity="", limit_s=LOAD_LIMIT_S) as session:
        if session is not None:
            session.global_(SERVICE_MODULE, "drop")(action.model_dir)
            manager.forget(action.model_dir, action.interpreter)
            logger.info("interpreter %d dropped %s", action.interpreter, action.model_dir)
    return False


def _load(
    manager: InterpreterManager, action: Action, token: str, load_command: bytes, limit_s: float
) -> bool | None:
    """Load a model; whether it was loaded, or None if another call has the interpreter now."""
    with _lease(manager, action, action.model_dir, limit_s) as session:
        if session is None:
            return None
        return bool(session.global_(SERVICE_MODULE, "warm")(token, load_command).to_value())
