"""The host's ordinary models: which of them the pool serves, and which TorchServe's own workers do."""

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
from interpool.handler.host.limits import is_shortage
from interpool.handler.host.ordinary_trial import Trial
from interpool.handler.host.worker import Worker
from interpool.handler.obstacles import obstacles
from interpool.handler.torchserve import MANIFEST
from interpool.native.directories import REMEDY, WHY_NOT, threads_have_directories

logger = logging.getLogger("interpool.host")

# Files in the runtime directory, with an archive's identity in their names.
_TRIED = "tried-"
_CRASHED = "crashed-"
_IN_A_CRASH = "the pool host ended while it tried to load this model. Try `interpool doctor --mar FILE`"
_NO_DIRECTORIES = f"{WHY_NOT}, and the model is to run in its directory. What to do: {REMEDY}"

if TYPE_CHECKING:
    from interpool.native.pool.manager import InterpreterManager


class OrdinaryModels:
    """Knows them by their directories. Its methods are for the host's control thread.

    Args:
        runtime_dir: the host's, which outlives a host that crashes.
    """

    def __init__(self, runtime_dir: Path) -> None:
        self.own_directory = threads_have_directories()
        self._runtime_dir = runtime_dir
        self._trials: dict[str, Trial] = {}
        self._pooled: set[str] = set()
        self._stock: dict[str, str] = {}
        self._parked: dict[str, str] = {}
        for marker in runtime_dir.glob(f"{_TRIED}*"):
            marker.replace(runtime_dir / marker.name.replace(_TRIED, _CRASHED))

    def left_to_stock(self, model_dir: str, *, ordinary: bool) -> str:
        """Why the pool does not serve a model, "" if it does, or has not been asked before."""
        if ordinary and model_dir not in self._stock and model_dir not in self._pooled:
            try:
                found = obstacles(model_dir)
            except SettingsError as error:
                if is_shortage(error):
                    raise  # which says nothing of the model
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
        """Try to load the worker's model, if nobody does already; ``settle`` is due after ``wake``."""
        directory = worker.registration.model_dir
        if directory in self._trials:
            self._trials[directory].workers.append(worker)
            return
        marker = self._runtime_dir / f"{_TRIED}{identity_of(directory)}"
        self._trials[directory] = Trial(manager, worker, marker, wake)

    def settle(self) -> list[Worker]:
        """The workers whose models have been tried since the last time."""
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
        """Leave a model to TorchServe's own workers, from its next worker on."""
        logger.warning("%s is left to TorchServe's own workers: %s", model_dir, reason)
        self._stock[model_dir] = reason
        self._pooled.discard(model_dir)

    def part_with(self, model_dir: str, reason: str, settings: HostSettings) -> None:
        """Have a model of any kind served by nobody of this process, from its next worker on.

        Its workers are processes of their own then: TorchServe's, in which a hermetic model's handler, if it
        is the one that we know, has a pool to itself. Where that cannot be trusted they are refused.
        """
        if is_hermetic(model_dir) and not _has_our_handler(model_dir, settings):
            logger.error("%s is parked: %s", model_dir, reason)
            self._parked[model_dir] = f"{reason}. It is parked until it is registered anew"
        else:
            self.leave(model_dir, reason)

    def parked(self, model_dir: str) -> str:
        """Why a model's workers are refused, "" if they are not."""
        return self._parked.get(model_dir, "")

    def forget_models(self) -> None:
        """Forget those whose directories are gone."""
        self._pooled = {directory for directory in self._pooled if os.path.isdir(directory)}
        self._stock = {each: reason for each, reason in self._stock.items() if os.path.isdir(each)}
        self._parked = {each: reason for each, reason in self._parked.items() if os.path.isdir(each)}


def _has_our_handler(model_dir: str, settings: HostSettings) -> bool:
    """Whether what a worker process would run of a hermetic archive, before it is checked, is ours."""
    if settings.signature_keys:
        return False
    ours = Path(__file__).parents[1] / f"{HANDLER_STEM}.py"
    try:
        return ours.read_bytes() == (Path(model_dir) / ours.name).read_bytes()
    except OSError:
        return False


def identity_of(model_dir: str) -> str:
    """Tells archives apart, whatever directory TorchServe extracts them to."""
    files = sorted((entry.name, entry.stat().st_size) for entry in os.scandir(model_dir) if entry.is_file())
    text = (Path(model_dir) / MANIFEST).read_bytes() + repr(files).encode()
    return hashlib.sha256(text).hexdigest()[:16]
