"""Decides whether a model shares interpreters, or has its own, its own process or TorchServe's own workers.

A model's settings may say it (``isolation``, ``ordinary``). Else the model shares interpreters until a
reason against that shows:

- *Interpreters of its own*: it has left traces in one that it shared.
- *A process of its own*, which is a pool for it alone: the process lost its GPU in a call of it. Or many
  interpreters are gone, and an earlier model of its name has left traces.
- *Stock*, TorchServe's own workers: its archive is ordinary, and an obstacle shows in its files, in its trial
  or in a call. Or calls of it did not return, each of which costs an interpreter.
- *Parked*: such calls of a model that stock workers cannot serve. Its workers are refused.

The shim reads ``isolation: process`` itself, and connects to that pool.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from interpool.handler.config import HostSettings, ModelSettings, model_manifest, own_pool
from interpool.handler.errors import SettingsError
from interpool.handler.frontend.shim import HANDLER_STEM, is_hermetic
from interpool.handler.host.interpreter_pool import Pool
from interpool.handler.host.ordinary_trial import Trials, identity_of
from interpool.handler.host.resource_limits import is_shortage
from interpool.handler.host.served_models import ServedModels
from interpool.handler.host.worker import Worker
from interpool.handler.obstacles import obstacles
from interpool.native.directories import REMEDY, WHY_NOT, threads_have_directories

if TYPE_CHECKING:
    from interpool.native.pool.manager import InterpreterManager

# The memory of retired interpreters stays in use. If so many are retired, a new model that has left traces
# before gets a process of its own.
MOST_RETIRED = 8
# So many calls that do not return may be an accident; one more shows that the model does it again.
MOST_LOST_CALLS = 2

_OWN_PROCESS = "apart-"  # files in the runtime directory, with an archive's identity in their names
_IN_A_CRASH = "the pool host ended while it tried to load this model. Try `interpool doctor --mar FILE`"
_NO_DIRECTORIES = f"{WHY_NOT}, and the model is to run in its directory. What to do: {REMEDY}"

logger = logging.getLogger("interpool.host")


@dataclass
class Isolation:
    """Knows models by their directories. Its methods are for the host's control thread."""

    runtime_dir: Path  # the next host finds it if this one does not remove it
    settings: HostSettings
    pool: Pool
    models: ServedModels
    is_own: bool  # this process serves one model alone
    # Each thread of this process can have a working directory of its own.
    own_directory: bool = field(default_factory=threads_have_directories)
    _pooled: set[str] = field(default_factory=set)
    _own_process: set[str] = field(default_factory=set)
    _stock: dict[str, str] = field(default_factory=dict)  # with the reasons
    _parked: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Find what an earlier host has left."""
        self._trials = Trials(self.runtime_dir)

    def elsewhere(self, model_dir: str, *, ordinary: bool) -> tuple[str, str] | None:
        """The answer (see control.py) to a worker whose model this pool does not serve; None if it does.

        The arguments and errors are those of ``left_to_stock``.
        """
        if reason := self.left_to_stock(model_dir, ordinary=ordinary):
            return "stock", reason
        is_new = self.models.get(model_dir) is None and not self.is_own
        if is_new and self.pool.retired >= MOST_RETIRED and self._left_traces_before(model_dir):
            self._own_process.add(model_dir)
        return ("pool", own_pool(model_dir)) if self._has_own_process(model_dir) else None

    def left_to_stock(self, model_dir: str, *, ordinary: bool) -> str:
        """Why TorchServe's own workers serve a model, and not the pool; "" if the pool serves it or may try.

        An ordinary model that comes for the first time is checked for obstacles.

        Args:
            model_dir: the model's directory.
            ordinary: whether its archive is ordinary.

        Raises:
            SettingsError: the process lacks memory or descriptors to read the model's files.
            OSError: the model's files cannot be read.
        """
        if ordinary and model_dir not in self._stock and model_dir not in self._pooled:
            try:
                found = obstacles(model_dir)
            except SettingsError as error:
                if is_shortage(error):
                    raise  # a shortage does not show what the model needs
                return str(error)
            if found:
                self.leave_to_stock(model_dir, "; ".join(map(str, found)))
            elif self._trials.ended_a_host(model_dir):
                self.leave_to_stock(model_dir, _IN_A_CRASH)
            elif not self.own_directory:
                self.leave_to_stock(model_dir, _NO_DIRECTORIES)
        return self._stock.get(model_dir, "")

    def parked(self, model_dir: str) -> str:
        """Why a model's workers are refused; "" if they are not."""
        return self._parked.get(model_dir, "")

    def apply_settings(self, worker: Worker, manager: InterpreterManager) -> None:
        """Give the worker's model interpreters of its own if its settings ask for that."""
        if worker.settings.isolation == "own":
            manager.isolate(worker.registration.model_dir)

    def is_tried(self, worker: Worker) -> bool:
        """Whether it is known who serves the worker's model."""
        return worker.registration.model_dir in (self._pooled | self._stock.keys())

    def try_out(self, worker: Worker, manager: InterpreterManager, wake: Callable[[], None]) -> None:
        """Start a trial of the worker's model; ``Trials.start`` has the arguments and errors."""
        self._trials.start(worker, manager, wake)

    def take_trials(self) -> list[Worker]:
        """Take the results of the trials that have ended, and return the workers that waited for them."""
        ended = self._trials.take_ended()
        for model_dir, trial in ended.items():
            if trial.reason and not trial.is_inconclusive:
                self.leave_to_stock(model_dir, trial.reason)
            elif not trial.is_inconclusive:
                self._pooled.add(model_dir)
        return [worker for trial in ended.values() for worker in trial.workers]

    def isolate(self, worker: Worker, reason: str) -> None:
        """Isolate the worker's model: from now on it shares no interpreter with another model."""
        model_dir = worker.registration.model_dir
        model = self.models.get(model_dir)
        if model is None or model.traces:
            return
        model.traces = reason
        self.pool.isolate(model_dir)
        served = "is served by interpreters of its own from now on"
        logger.warning("%s %s: %s", worker.model, served, reason)
        worker.tell(f"interpool: this model {served}, as {reason}\n")

    def leave_to_stock(self, model_dir: str, reason: str) -> None:
        """Leave a model to TorchServe's own workers, from its next worker on.

        Args:
            model_dir: the model's directory.
            reason: why, for the log and for the workers.
        """
        logger.warning("%s is left to TorchServe's own workers: %s", model_dir, reason)
        self._stock[model_dir] = reason
        self._pooled.discard(model_dir)

    def note_lost_call(self, model_dir: str, reason: str) -> bool:
        """Note that a call of a model did not return; True if its workers must end, as it repeats that.

        TorchServe's own workers then serve it, each in a process of its own. There a hermetic model's handler
        makes a pool for that model alone, if it is interpool's own handler. If the handler is another one, or
        archives must be signed, the model is parked.

        Args:
            model_dir: the model's directory.
            reason: on that call, for people.
        """
        model = self.models.get(model_dir)
        if model is None:
            return False
        model.given_up += 1
        if model.given_up <= MOST_LOST_CALLS:
            return False
        count = f"{model.given_up} of its calls did not come back, and each cost an interpreter"
        why = f"{count}. The last: {reason}"
        if is_hermetic(model_dir) and not _has_our_handler(model_dir, self.settings):
            logger.error("%s is parked: %s", model_dir, why)
            self._parked[model_dir] = f"{why}. It is parked until it is registered anew"
        else:
            self.leave_to_stock(model_dir, why)
        return True

    def give_own_process(self, model_dir: str) -> None:
        """Have a process of its own serve a model, also after this host, which is about to leave."""
        self._own_process.add(model_dir)
        try:
            self._mark_of(model_dir).touch()
        except OSError as error:  # for example, it was unregistered meanwhile
            logger.warning("%s gets no process of its own from the next host: %s", model_dir, error)

    @property
    def has_marks(self) -> bool:
        """Whether the runtime directory holds something that the next host must find."""
        return any(self.runtime_dir.glob(f"{_OWN_PROCESS}*"))

    def forget_models(self) -> None:
        """Forget the models whose directories are gone."""
        self._pooled = set(filter(os.path.isdir, self._pooled))
        self._own_process = set(filter(os.path.isdir, self._own_process))
        self._stock = {each: reason for each, reason in self._stock.items() if os.path.isdir(each)}
        self._parked = {each: reason for each, reason in self._parked.items() if os.path.isdir(each)}

    def _has_own_process(self, model_dir: str) -> bool:
        if model_dir not in self._own_process and self.has_marks:
            try:
                if self._mark_of(model_dir).exists():
                    self._own_process.add(model_dir)
            except OSError:
                return False
        return model_dir in self._own_process

    def _mark_of(self, model_dir: str) -> Path:
        return self.runtime_dir / f"{_OWN_PROCESS}{identity_of(model_dir)}"

    def _left_traces_before(self, model_dir: str) -> bool:
        with contextlib.suppress(SettingsError):
            if ModelSettings.of_model(model_dir).isolation == "auto":
                name = str(model_manifest(model_dir).get("modelName"))
                if traces := self.models.traces_before(name):
                    logger.warning("%s gets a process of its own, as before %s", name, traces)
                return bool(traces)
        return False


def _has_our_handler(model_dir: str, settings: HostSettings) -> bool:
    """Whether the code of a hermetic archive that a worker process runs before it checks the rest is ours."""
    if settings.signature_keys:
        return False
    ours = Path(__file__).parents[1] / f"{HANDLER_STEM}.py"
    try:
        return ours.read_bytes() == (Path(model_dir) / ours.name).read_bytes()
    except OSError:
        return False
