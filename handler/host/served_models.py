"""Records what has happened to a host's models, for its status.

Counts only grow, as long as the host lives. A model is gone once it is unregistered, or left to TorchServe's
own workers. The counts of a model that is gone continue with the next model of its name. A registration that
failed stays in the status after the model is gone.
"""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from interpool.handler.host.span_export import Exemplars
from interpool.handler.worker_reports import Report

if TYPE_CHECKING:
    from interpool.handler.host.host_state import ServedState

# By then TorchServe has restarted a worker, or will not. After so long, a failed load does not make its model
# count as not ready any more. The next request tries the load again, and a load balancer sends none to a
# model that is not ready.
RESTART_S = 120.0
GONE_LIMIT = 500  # names


class End(StrEnum):
    """Why a worker ended."""

    DISCONNECTED = "disconnected"  # by TorchServe: scaled down, unregistered, or out of time
    SHIM_GONE = "shim_gone"
    LOAD_FAILED = "load_failed"
    MODEL_EXIT = "model_exit"  # for example, sys.exit() in the model's code
    DEVICE_LOST = "device_lost"  # the process can use its GPU no more, because of this model or another one
    GIVEN_UP = "given_up"  # a call of it was interrupted, and did not return
    REPLACED = "replaced"
    REFUSED = "refused"
    LEFT_TO_STOCK = "left_to_stock"  # an ordinary model that needs a process of its own
    NOT_CONNECTED = "not_connected"  # TorchServe never came
    MODEL_GONE = "model_gone"
    SHUTDOWN = "shutdown"


# By the kind of an interpreter's report on a worker that is about to end.
REPORTED_ENDS = {"not_started": End.LOAD_FAILED, "ended": End.MODEL_EXIT, "device_lost": End.DEVICE_LOST}


@dataclass
class ServedModel:
    """One registered model, with the counts of its workers and its loads."""

    name: str  # the name that it is registered by, and its version; until its first load, the archive's name
    loads: int = 0  # how often an interpreter loaded it
    load_s: float = 0.0  # seconds that these loads took, together
    failed_loads: int = 0  # loads that failed
    worker_starts: int = 0  # workers that were registered for it
    worker_restarts: int = 0  # those among them that took another's place
    worker_ends: Counter[End] = field(default_factory=Counter)  # workers that ended, by reason
    reason: str = ""  # why the last load failed; "" if one has succeeded since, or none failed
    given_up: int = 0  # calls that did not return and cost their interpreters
    traces: str = ""  # why it has interpreters of its own; "" if it has none
    archive: str = ""  # the name in its archive, without a version
    exemplars: Exemplars = field(default_factory=Exemplars)  # the latencies of traced calls
    _failed_at: float = 0.0
    _places: dict[str, float] = field(default_factory=dict)  # address, and when its worker ended
    _lost: dict[str, float] = field(default_factory=dict)  # address, and when its worker failed

    def worker_began(self, address: str) -> None:
        """Note that a worker is registered at an address.

        TorchServe gives an address only to the worker that replaces the last one there.
        """
        # Old addresses do not come back, as TorchServe numbers its workers upwards.
        self._places, self._lost = _recent(self._places), _recent(self._lost)
        self.worker_starts += 1
        self.worker_restarts += address in self._places
        self._places[address] = math.inf
        self._lost.pop(address, None)

    def worker_ended(self, address: str, why: End) -> None:
        """Note that a worker has ended; another one may take its place.

        Args:
            address: of the worker.
            why: the reason.
        """
        self.worker_ends[why] += 1
        self._places[address] = time.monotonic()
        if why in (End.LOAD_FAILED, End.MODEL_EXIT, End.DEVICE_LOST, End.GIVEN_UP):
            self._lost[address] = time.monotonic()

    def note(self, report: Report) -> None:
        """Count a load that an interpreter has reported."""
        if report.kind == "loaded":
            self.loads += 1
            self.load_s += report.seconds
            self.reason = ""
        elif report.kind == "load_failed":
            self.failed_loads += 1
            self.reason = report.reason
            self._failed_at = time.monotonic()

    def add(self, other: ServedModel) -> None:
        """Add the counts of an earlier model of its name to these."""
        self.loads += other.loads
        self.load_s += other.load_s
        self.failed_loads += other.failed_loads
        self.worker_starts += other.worker_starts
        self.worker_restarts += other.worker_restarts
        self.worker_ends.update(other.worker_ends)
        self.given_up += other.given_up
        self.traces = self.traces or other.traces

    def describe(self) -> ServedState:
        """The model's state, for the host's status."""
        now = time.monotonic()
        return {
            "model": self.name,
            "loads": self.loads,
            "load_s": round(self.load_s, 4),
            "failed_loads": self.failed_loads,
            "worker_starts": self.worker_starts,
            "worker_restarts": self.worker_restarts,
            "worker_ends": {why.value: count for why, count in self.worker_ends.items()},
            "given_up": self.given_up,
            "workers_awaited": sum(now - since < RESTART_S for since in self._lost.values()),
            "reason": self.reason,
            "traces": self.traces,
            "exemplars": self.exemplars.describe(),
            "failed_lately": bool(self.reason) and now - self._failed_at < RESTART_S,
        }


def _recent(ended: dict[str, float]) -> dict[str, float]:
    """Those addresses at which another worker may still start."""
    now = time.monotonic()
    return {address: since for address, since in ended.items() if now - since < RESTART_S}


class ServedModels:
    """The models of a host, by directory, and the counts of those that are gone."""

    def __init__(self) -> None:
        self._here: dict[str, ServedModel] = {}
        self._gone: dict[str, ServedModel] = {}  # by name

    def get(self, model_dir: str) -> ServedModel | None:
        """The model in that directory; None if it is not known."""
        return self._here.get(model_dir)

    def register(self, model_dir: str, name: str) -> ServedModel:
        """The model in that directory; it is added if it is not known yet.

        Args:
            model_dir: the directory.
            name: ``name/version``, for a model that is added.
        """
        return self._here.setdefault(model_dir, ServedModel(name, archive=name.partition("/")[0]))

    def traces_before(self, name: str) -> str:
        """The traces that an earlier model whose archive had that name, of any version, left; "" if none."""
        each = (model for model in self._gone.values() if model.archive == name)
        return next((model.traces for model in each if model.traces), "")

    def names(self) -> dict[str, str]:
        """The ``name/version`` of each registered model, by directory."""
        return {model_dir: model.name for model_dir, model in self._here.items()}

    def forget(self) -> None:
        """Note which models were unregistered: their directories are gone."""
        for model_dir in [one for one in self._here if not os.path.isdir(one)]:
            self.remove(model_dir)

    def remove(self, model_dir: str) -> None:
        """Note that the host does not serve the model in that directory any more; its counts stay."""
        model = self._here.pop(model_dir)
        before = self._gone.pop(model.name, None)
        if before is not None:
            model.add(before)
        self._gone[model.name] = model
        if len(self._gone) > GONE_LIMIT:
            del self._gone[next(iter(self._gone))]

    def here(self) -> dict[str, ServedState]:
        """The registered models by directory, for the host's status."""
        return {model_dir: model.describe() for model_dir, model in self._here.items()}

    def gone(self) -> dict[str, ServedState]:
        """The models that the host serves no more, by ``name/version``, for the host's status."""
        return {name: model.describe() for name, model in self._gone.items()}
