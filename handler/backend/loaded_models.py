"""Keeps the models that this interpreter has loaded, and unloads them.

Any interpreter may get a worker's next batch. So a model is loaded once per interpreter, and not once per
worker, unless the worker has a state of its own (ModelSettings). A state ends with its last worker: the host
numbers states.
"""

from __future__ import annotations

import gc
import os
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, Self

from ts.protocol.otf_message_handler import retrieve_msg
from ts.service import Service

from interpool.handler.backend.process_view import ProcessView, leave_directory
from interpool.handler.backend.wire import FrameReader
from interpool.handler.worker_token import WorkerToken
from interpool.native.inside.parking import give_memory_back, when_parked

SWEEP_S = 5.0


class ModelKey(NamedTuple):
    """Two workers with equal keys share one loaded model in an interpreter.

    Attributes:
        load_command: the first frame of the worker's connection.
        metrics_config: TorchServe's file of the metrics that models declare.
        tracebacks: whether answers hold tracebacks.
        state: the number of the worker's own state; 0 if it shares one.
    """

    load_command: bytes
    metrics_config: str
    tracebacks: bool
    state: int = 0

    @classmethod
    def of_worker(cls, load_command: bytes, token: WorkerToken) -> Self:
        """Return the key of a worker.

        Args:
            load_command: the first frame of its connection.
            token: the host's, for the worker.
        """
        state = token.state if token.own_state else 0
        return cls(load_command, token.metrics_config, token.tracebacks, state)

    @property
    def model_name(self) -> str:
        """The name that the model is registered by."""
        return str(retrieve_msg(FrameReader(self.load_command))[1]["modelName"].decode())


@dataclass(eq=False)
class LoadedModel:
    """A model in this interpreter.

    Attributes:
        service: answers its batches.
        view: must be in place while it is called.
        directory: where TorchServe extracted its .mar. TorchServe removes it when the model is unregistered.
        close: unloads the model; it can be loaded again.
        ordinary: whether its archive was made without interpool.
        state: the number of the state that its calls change (WorkerToken).
        weights: what became of an ordinary model's weights, for people.
        traces: what it left that other models would meet, for people.
        is_called: whether it has been called here.
    """

    service: Service
    view: ProcessView
    directory: str
    close: Callable[[], None]
    ordinary: bool
    state: int
    weights: str = ""
    traces: str = ""
    is_called: bool = False


loaded: dict[ModelKey, LoadedModel] = {}
# Numbers stay after their state was unloaded: a call that runs meanwhile may load the model once more.
_ended_states: deque[int] = deque(maxlen=1000)
_next_sweep = 0.0


def current(key: ModelKey, token: WorkerToken) -> LoadedModel | None:
    """Return the model if it is loaded. Older states of it are unloaded.

    Args:
        key: of the worker.
        token: of the worker; it has the number of the present state.
    """
    model = loaded.get(key)
    if model is None or model.state >= token.state:
        return model
    directory = model.directory
    del model  # what is referred to here would not be collected
    unload([k for k, m in loaded.items() if m.directory == directory and m.state < token.state])
    return None


def unload(keys: Iterable[ModelKey]) -> None:
    """Unload these models."""
    gone = [loaded.pop(key) for key in keys]
    for model in gone:
        leave_directory(model.directory)
        model.close()
    if gone:
        del model
        gone.clear()
        gc.unfreeze()  # a model's gc.freeze() would keep all models in memory
        gc.collect()  # a model's importer, or its modules, refer to each other


def _unload_all() -> None:
    """Unload every model: this interpreter is parked. A model that is needed again is loaded again."""
    unload(list(loaded))


when_parked(_unload_all)


def sweep_if_due() -> None:
    """Sweep if the last sweep was ``SWEEP_S`` seconds ago."""
    global _next_sweep
    now = time.monotonic()
    if now >= _next_sweep:
        _next_sweep = now + SWEEP_S
        sweep()


def sweep() -> None:
    """Unload models whose directory is gone, because they were unregistered, and those in ended states."""
    gone = [
        key
        for key, model in loaded.items()
        if model.state in _ended_states or not os.path.isdir(model.directory)
    ]
    if gone:
        unload(gone)
        # The allocator would keep what lies between blocks in use.
        give_memory_back()


def end_states(numbers: str) -> None:
    """Note states that no worker has any more. The next sweep unloads the models in them.

    Other threads may run models meanwhile, so nothing is unloaded here.

    Args:
        numbers: of the states, with spaces between them.
    """
    _ended_states.extend(map(int, numbers.split()))


def drop(directory: str, own_states: bool = False) -> None:
    """Unload the model in a directory. Its next batch in this interpreter loads it again.

    Args:
        directory: of the model.
        own_states: whether workers with states of their own lose them, too.
    """
    unload(
        [
            key
            for key, model in loaded.items()
            if model.directory == directory and (own_states or not key.state)
        ]
    )
    give_memory_back()
