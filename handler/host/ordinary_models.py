"""The host's ordinary models: which of them the pool serves, and which TorchServe's own workers serve."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from interpool.handler.config import HostSettings
from interpool.handler.errors import SettingsError
from interpool.handler.frontend.shim import HANDLER_STEM, is_hermetic
from interpool.handler.host.kept_directory import KeptDirectory
from interpool.handler.host.ordinary_trial import Trial
from interpool.handler.host.resource_limits import is_shortage
from interpool.handler.host.worker import Worker
from interpool.handler.obstacles import obstacles
from interpool.handler.torchserve import MANIFEST
from interpool.native.directories import REMEDY, WHY_NOT, threads_have_directories

logger = logging.getLogger("interpool.host")

# Files in the runtime directory, with an archive's identity in their names. They hold its directory's path.
_TRIED = "tried-"
_CRASHED = "crashed-"
_IN_A_CRASH = "the pool host ended while it tried to load this model. Try `interpool doctor --mar FILE`"
_NO_DIRECTORIES = f"{WHY_NOT}, and the model is to run in its directory. What to do: {REMEDY}"

if TYPE_CHECKING:
    from interpool.native.pool.manager import InterpreterManager


class OrdinaryModels:
    """Knows ordinary models by their directories. Its methods are for the host's control thread.

    Args:
        runtime_dir: the host's runtime directory, which outlives a host that crashes.

    Attributes:
        own_directory: whether each thread of this process can have a working directory of its own.
    """

    def __init__(self, runtime_dir: Path) -> None:
        self.own_directory = threads_have_directories()
        self._runtime_dir = runtime_dir
        self._trials: dict[str, Trial] = {}
        self._pooled: set[str] = set()
        self._stock: dict[str, str] = {}
        self._parked: dict[str, str] = {}
        for marker in runtime_dir.glob(f"{_TRIED}*"):
            _restore(marker)
            marker.replace(runtime_dir / marker.name.replace(_TRIED, _CRASHED))

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
                self.leave(model_dir, "; ".join(map(str, found)))
            elif (self._runtime_dir / f"{_CRASHED}{identity_of(model_dir)}").exists():
                self.leave(model_dir, _IN_A_CRASH)
            elif not self.own_directory:
                self.leave(model_dir, _NO_DIRECTORIES)
        return self._stock.get(model_dir, "")

    def is_tried(self, worker: Worker) -> bool:
        """Whether it is known who serves the worker's model."""
        return worker.registration.model_dir in (self._pooled | self._stock.keys())

    def try_out(self, worker: Worker, manager: InterpreterManager, wake: Callable[[], None]) -> None:
        """Start a trial of the worker's model, or have the worker wait for the trial that runs already.

        Args:
            worker: to which TorchServe has connected.
            manager: of the pool's interpreters.
            wake: called from the trial's thread at its end; then ``take_trials`` is due.

        Raises:
            OSError: the process has no descriptors left, or the model's files cannot be read.
        """
        directory = worker.registration.model_dir
        if directory in self._trials:
            self._trials[directory].workers.append(worker)
            return
        marker = self._runtime_dir / f"{_TRIED}{identity_of(directory)}"
        self._trials[directory] = Trial(manager, worker, marker, wake)

    def take_trials(self) -> list[Worker]:
        """Take the results of the trials that have ended, and return the workers that waited for them."""
        ended = {directory: trial for directory, trial in self._trials.items() if trial.reason is not None}
        workers = []
        for directory, trial in ended.items():
            del self._trials[directory]
            workers += trial.workers
            if trial.came_to_nothing:
                continue
            if trial.reason:
                self.leave(directory, trial.reason)
            else:
                self._pooled.add(directory)
        return workers

    def leave(self, model_dir: str, reason: str) -> None:
        """Leave a model to TorchServe's own workers, from its next worker on.

        Args:
            model_dir: the model's directory.
            reason: why, for the log and for the workers.
        """
        logger.warning("%s is left to TorchServe's own workers: %s", model_dir, reason)
        self._stock[model_dir] = reason
        self._pooled.discard(model_dir)

    def stop_serving(self, model_dir: str, reason: str, settings: HostSettings) -> None:
        """Have this process serve a model of any kind no more, from its next worker on.

        TorchServe's own workers then serve it, each in a process of its own. There a hermetic model's handler
        makes a pool for that model alone, if it is interpool's own handler. If the handler is another one, or
        archives must be signed, the model's workers are refused.

        Args:
            model_dir: the model's directory.
            reason: why, for the log and for the workers.
            settings: the host's settings; they say whether archives must be signed.
        """
        if is_hermetic(model_dir) and not _has_our_handler(model_dir, settings):
            logger.error("%s is parked: %s", model_dir, reason)
            self._parked[model_dir] = f"{reason}. It is parked until it is registered anew"
        else:
            self.leave(model_dir, reason)

    def parked(self, model_dir: str) -> str:
        """Why a model's workers are refused; "" if they are not."""
        return self._parked.get(model_dir, "")

    def forget_models(self) -> None:
        """Forget the models whose directories are gone."""
        self._pooled = {directory for directory in self._pooled if os.path.isdir(directory)}
        self._stock = {each: reason for each, reason in self._stock.items() if os.path.isdir(each)}
        self._parked = {each: reason for each, reason in self._parked.items() if os.path.isdir(each)}


def _restore(marker: Path) -> None:
    """Restore the directory of a model in whose trial a host has died."""
    try:
        kept = KeptDirectory(os.fsdecode(marker.read_bytes()))
        kept.put_back()
        kept.remove()
    except (OSError, ValueError) as error:
        logger.warning("the directory of a model whose trial ended a host cannot be restored: %s", error)


def _has_our_handler(model_dir: str, settings: HostSettings) -> bool:
    """Whether the code of a hermetic archive that a worker process runs before it checks the rest is ours."""
    if settings.signature_keys:
        return False
    ours = Path(__file__).parents[1] / f"{HANDLER_STEM}.py"
    try:
        return ours.read_bytes() == (Path(model_dir) / ours.name).read_bytes()
    except OSError:
        return False


def identity_of(model_dir: str) -> str:
    """A text that identifies an archive, whatever directory TorchServe extracts it to.

    Raises:
        OSError: the directory or its manifest cannot be read.
    """
    files = sorted((entry.name, entry.stat().st_size) for entry in os.scandir(model_dir) if entry.is_file())
    text = (Path(model_dir) / MANIFEST).read_bytes() + repr(files).encode()
    return hashlib.sha256(text).hexdigest()[:16]
