"""TorchServe's backend for one frame, inside a private interpreter.

The pool calls a ``WorkerService`` for every frame that TorchServe's frontend sends to a worker. It does
what TorchServe's own worker does with it (``TorchModelServiceWorker.load_model`` and
``handle_connection``), with TorchServe's own code for predicting and, where anything is unusual, for
decoding and encoding (``codec``). It differs where one process per worker was taken for granted:

- any interpreter may get a worker's next batch, so a model is loaded from the connection's
  first frame, the load command, wherever it is first needed, once per interpreter and not per
  worker, unless the worker has a state of its own (ModelSettings);
- a model's state ends with its last worker, and not with a process: the host numbers states;
- the handler file in a hermetic .mar is a name and nothing more: it makes the archive hermetic, and
  what it holds is never run here. So an archive that is refused has run nothing at all;
- an ordinary archive is loaded by TorchServe's own loader, with modules of its own
  (``ordinary.OrdinaryModel``);
- what a process has once, each model has for itself (``process_view``);
- what a call prints or logs goes to its own worker's pipes;
- a failed load says what failed; a call that ends the worker's process in TorchServe ends the
  worker's connection here.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ts.context import Context
from ts.model_loader import TsModelLoader
from ts.protocol.otf_message_handler import (
    LOAD_MSG,
    create_load_model_response,
    create_predict_response,
    retrieve_msg,
)
from ts.service import Service

import _interpool
from interpool.handler.backend import codec, plain_logging, stdio
from interpool.handler.backend.codec import Batch, receive_batch, request_ids, take_batch
from interpool.handler.backend.error_text import describe
from interpool.handler.backend.load_request import LoadRequest
from interpool.handler.backend.loading import load_model
from interpool.handler.backend.lost_devices import lost_device, note, noting
from interpool.handler.backend.ordinary_model import OrdinaryModel
from interpool.handler.backend.packed_model import PackedModel
from interpool.handler.backend.process_view import ProcessView, take_out
from interpool.handler.backend.wire import FramePeeker, FrameReader, ReplyWriter
from interpool.handler.errors import (
    CALL_LIMIT_CODE,
    NotPoolable,
    ServeError,
    SettingsError,
    load_failure_code,
    predict_failure_code,
)
from interpool.handler.failed_load import ask_for_own_interpreters, ask_for_own_process, end_shims
from interpool.handler.frontend.shim import HANDLER_STEM
from interpool.handler.log_format import named
from interpool.handler.torchserve import ts_log_line
from interpool.handler.worker_reports import Kind, Report
from interpool.handler.worker_token import WorkerToken
from interpool.native.inside import interpreter_id
from interpool.native.inside.parking import give_memory_back, when_parked
from interpool.native.inside.rebinding import FIRST_CALLS, Neighbourhood
from interpool.native.inside.refusals import take_conflict, take_refusals
from interpool.native.upstream.cpython_private import filter_warnings

SWEEP_S = 5.0
_LOAD = LOAD_MSG[0]
# TorchServe's worker logs to the root logger, without names: so do its lines here.
logger = logging.getLogger()


class _Key(NamedTuple):
    """What decides whether two workers can share one loaded model in an interpreter."""

    load_command: bytes
    metrics_config: str
    tracebacks: bool
    state: int = 0  # of a worker that shares it with none


class _PoolService(Service):  # type: ignore[misc]
    """TorchServe's Service for a model that is loaded already.

    Service's own ``__init__`` would make another context than the one that ``load_model`` made.
    """

    def __init__(self, model: PackedModel, context: Context, envelope: type[Any] | None) -> None:
        self._context = context
        if envelope is not None and not model.takes_envelope:
            self._entry_point = envelope(model.handle).handle
        else:
            self._entry_point = model.handle


@dataclass(eq=False)
class _Loaded:
    """A model in this interpreter.

    Attributes:
        service: answers its batches.
        view: what must be in place meanwhile.
        directory: where TorchServe extracted its .mar, which it removes when the model goes.
        close: forgets it; it can be loaded again.
        ordinary: whether its archive is.
        state: the number of the state that its calls change (WorkerToken).
        weights: what became of an ordinary model's weights, for people.
        traces: what it has left that its neighbours would meet, for people.
        first_calls: how many of its calls are still to be looked at thoroughly.
    """

    service: Service
    view: ProcessView
    directory: str
    close: Callable[[], None]
    ordinary: bool
    state: int
    weights: str = ""
    traces: str = ""
    first_calls: int = FIRST_CALLS


class _LoadError(Exception):
    """A model could not be loaded.

    Attributes:
        code: of the answer.
        text: of the answer.
        conflict: what a neighbour in this interpreter has that is in its way, "" if that is not the reason.
        unnamed: the text without the exception's type.
    """

    def __init__(self, code: int, text: str, conflict: str = "", unnamed: str = "") -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.conflict = conflict
        self.unnamed = unnamed


class _Elsewhere(Exception):
    """Another interpreter is to answer."""


_models: dict[_Key, _Loaded] = {}
# A call that runs while its state ends may still load the model: numbers stay until that cannot be.
_ended_states: deque[int] = deque(maxlen=1000)
_next_sweep = 0.0
_neighbourhood = Neighbourhood()
_last: WorkerToken | None = None  # of whom a frame was answered last
_served: dict[str, WorkerToken] = {}  # whose models ran here since the last thorough look, by directory
_unwatched: set[str] = set()  # directories of models whose traces do not count
_has_one_model = False  # it leaves no trace that anybody else meets


def _set_up() -> None:
    """Once per interpreter: what the top of TorchServe's worker script does, and Python before it."""
    stdio.install()
    codec.install()
    # Private interpreters look at no variable of Python's.
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    filter_warnings(os.environ.get("PYTHONWARNINGS", ""))
    plain_logging.install()


_set_up()


class WorkerService:
    """What answers one worker's connection in this interpreter, made by its first message here.

    Args:
        worker: the host's WorkerToken for the worker, as text.
        load_command: the connection's first frame.
    """

    def __init__(self, worker: str, load_command: bytes) -> None:
        self._token = WorkerToken.of_text(worker)
        self._key = _key(load_command, self._token)
        token = self._token
        self._lines = stdio.to_worker(token.stdout, token.stderr, load_command, token.notes, token.metrics)
        self._replies = ReplyWriter(_interpool.send_part, self._lines.flush)
        # Weakly, as one that is unloaded must not stay in memory for a connection that is silent.
        self._model: Callable[[], _Loaded | None] = _no_model

    def __call__(self, frame: bytes | memoryview) -> tuple[bytes | bytearray, bool] | None:
        """Answer one frame, of which nothing is kept.

        Returns:
            The reply's bytes, and whether the connection stays open. TorchServe restarts a worker
            whose connection ends. None: another interpreter is to answer, as this one cannot be trusted.
        """
        if _is_touched_by_another(self._token):
            return None
        with self._lines:
            try:
                return self._answer(frame)
            except _Elsewhere:
                return None
            except (Exception, SystemExit, KeyboardInterrupt) as error:
                # As TorchServe's own worker.
                if isinstance(error, Exception) or not self._token.ordinary:
                    logger.exception("Backend worker process died.")
                _report(self._token, "ended", f"a worker of {self.model_name!r} ended: {describe(error)}")
                return b"", False

    def _answer(self, frame: bytes | memoryview) -> tuple[bytes | bytearray, bool]:
        _sweep_now_and_then()
        if frame[0] == _LOAD:
            return self._load()
        token, model, requests = self._token, self._model(), None
        if model is None:
            requests = receive_batch(frame)
            try:
                model = self._loaded_again()
            except _LoadError as error:
                if _report_lost_device(token):
                    return _refusal(requests, error.text, error.code), False
                if token.ordinary:  # loaded in others: a process of its own can load it again
                    ask_for_own_process(token.failed_load, error.text)
                return self._not_loaded(requests, error.text, error.code), not token.ordinary
        if model.state > token.state:
            return b"", False  # the worker has ended: its requests must not change the next one's state
        model.service.set_cl_socket(self._replies)
        view = model.view
        view.enter(token.arguments)
        try:
            batch = take_batch(frame) if requests is None else requests
            reply = self._run(model, batch)
        except _interpool.CallInterrupted as error:
            self._serve_apart(take_conflict(model.directory))
            return self._interrupted(batch, error), True
        finally:
            view.leave()
        if _report_lost_device(token):
            return reply, False
        if model.ordinary and (refusals := take_refusals()):
            logger.error("interpool: served by worker processes of its own from now on: %s", refusals[0])
            ask_for_own_process(token.failed_load, refusals[0])
            return reply, False
        self._serve_apart(take_conflict(model.directory))
        is_first = model.first_calls > 0
        model.first_calls -= is_first
        _look(model.directory, token, is_first)
        return reply, True

    def _run(self, model: _Loaded, batch: Batch) -> bytes | bytearray:
        return _interpool.call_interruptible(_predict, model, batch)

    def _not_loaded(self, requests: Batch, text: str, code: int) -> bytes:
        return _refusal(requests, text, code)

    @property
    def model_name(self) -> str:
        """The name that its model is registered by."""
        return _model_name(self._key.load_command)

    def _is_loaded(self) -> bool:
        """Whether another worker has loaded the model here."""
        return self._key in _models

    def _serve_apart(self, conflict: str) -> None:
        """Have the model served by interpreters of its own, if a neighbour's is in its way in this one."""
        if conflict:
            ask_for_own_interpreters(self._token.failed_load, conflict)

    def _interrupted(self, batch: Batch, error: BaseException) -> bytes:
        """The call took too long, or nobody waits for it any more; the model may be half changed."""
        text = f"Model {self.model_name!r}: the call took longer than it may, and was interrupted"
        logger.error("interpool: %s. The model is loaded anew in this interpreter", text, exc_info=error)
        _unload(_models.keys() & {self._key})
        return _refusal(batch, text, CALL_LIMIT_CODE)

    def _load(self) -> tuple[bytes, bool]:
        token = self._token
        try:
            self._loaded()
        except _LoadError as error:
            _report(token, "not_started", model=self.model_name)
            # A faulty archive or setting fails every worker of the model.
            end_shims(token.failed_load, whole_model=error.code == 400)
            _report_lost_device(token)
            return bytes(create_load_model_response(error.code, error.text)), False
        _report(token, "started", model=self.model_name)
        text = f"loaded model {self.model_name}"
        return bytes(create_load_model_response(200, text)), True

    def _loaded_again(self) -> _Loaded:
        """The model, which another worker may have loaded meanwhile; raises _LoadError."""
        if self._token.own_state and not self._is_loaded():
            logger.warning(
                "interpool: the interpreter that this worker's batches ran in is lost; its state begins anew"
            )
        return self._loaded()

    def _loaded(self) -> _Loaded:
        """The model; raises _LoadError, or _Elsewhere if a neighbour's is in its way in this interpreter."""
        try:
            model = _model(self._key, self._token)
        except _LoadError as error:
            self._serve_apart(error.conflict)
            if error.conflict:
                raise _Elsewhere from None
            raise
        self._model = weakref.ref(model)
        return model


def _no_model() -> None:
    """Stands for a reference to a model before there is one."""


def _predict(model: _Loaded, batch: Batch) -> bytes | bytearray:
    try:
        reply = model.service.predict(batch)
        return reply if type(reply) is bytearray else bytes(reply)
    except Exception as error:
        if model.ordinary:
            raise
        # TorchServe's worker dies of what its encoder does not expect in a model's answer.
        name = model.service.context.model_name
        logger.exception("The answer of model %s cannot be sent", name)
        text = f"Model {name!r}: its answer cannot be sent: {describe(error)}"
        return _refusal(batch, text, predict_failure_code(error))


def _report(
    token: WorkerToken, kind: Kind, reason: str = "", began: float | None = None, *, model: str = ""
) -> None:
    """Tell the host, and TorchServe's own log why, if there is a reason."""
    if reason:
        print(ts_log_line(f"{reason}{named(stdio.requests())}"))
    seconds = 0.0 if began is None else time.monotonic() - began
    Report(kind, token.pid, interpreter_id() or 0, seconds, reason, model).send(token.reports)


def _report_lost_device(token: WorkerToken) -> bool:
    """Whether this process has lost its GPU; if so, the host leaves once the worker has its answer."""
    reason = lost_device()
    if reason:
        _report(token, "device_lost", f"this process can use its GPU no more: {reason}")
    return bool(reason)


def _model_name(load_command: bytes) -> str:
    return str(retrieve_msg(FrameReader(load_command))[1]["modelName"].decode())


def _refusal(batch: Batch, text: str, code: int) -> bytes:
    return bytes(create_predict_response(None, request_ids(batch), text, code))


# ---- loading ----------------------------------------------------------------------------------


def try_to_load(worker: str, source: int | bytes) -> tuple[str, str, str]:
    """Load a model for a worker.

    Args:
        worker: the host's WorkerToken for the worker, as text.
        source: the load command; or the socket that it waits in, where it is left.

    Returns:
        Why it cannot be loaded in this interpreter, "" if it was; why it is to have interpreters of its
        own, "" if it need not; what became of its weights.
    """
    token = WorkerToken.of_text(worker)
    if isinstance(source, int):
        reader = FramePeeker(source)
        retrieve_msg(reader)
        source = reader.frame
    with stdio.to_worker(token.stdout, token.stderr, source):
        try:
            model = _model(_key(source, token), token)
        except _LoadError as error:
            _report_lost_device(token)
            return error.unnamed or error.text, error.conflict, ""
        except _Elsewhere as error:
            return str(error), str(error), ""
        return "", model.traces, model.weights


def _key(load_command: bytes, token: WorkerToken) -> _Key:
    own = token.state if token.own_state else 0
    return _Key(load_command, token.metrics_config, token.tracebacks, own)


def _model(key: _Key, token: WorkerToken) -> _Loaded:
    """The loaded model in this interpreter; raises _LoadError."""
    model = _models.get(key)
    if model is not None and model.state < token.state:
        directory, model = model.directory, None  # what is referred to here would not be collected
        _unload([k for k, m in _models.items() if m.directory == directory and m.state < token.state])
    if model is None:
        sweep()  # what was unregistered is in nobody's way
        with stdio.loading():
            model = _models[key] = _load(key, token)
    return model


def _load(key: _Key, token: WorkerToken) -> _Loaded:
    """Load a model as ``TorchModelServiceWorker.load_model`` does; raises _LoadError."""
    _, command = retrieve_msg(FrameReader(key.load_command))
    request = LoadRequest(
        model_name=command["modelName"].decode(),
        model_dir=command["modelPath"].decode(),
        batch_size=int(command["batchSize"]),
        gpu=command.get("gpu"),
        limit_max_image_pixels=bool(command["limitMaxImagePixels"]),
        metrics_config=key.metrics_config,
        tracebacks=key.tracebacks,
        envelope=command["envelope"].decode(),
        alone=token.own_state,
        most_answer_bytes=token.most_answer_bytes,
    )
    name, handler = request.model_name, command["handler"].decode()
    logger.info("model_name: %s, batchSize: %d", name, request.batch_size)
    take_refusals()
    take_conflict(request.model_dir)
    conflict = ""
    if not token.unwatched:
        _neighbourhood.begin()
    began = time.monotonic()
    if token.failed_load >= 0:  # not ahead: a call of the worker's waits for it
        _report(token, "loading", model=name)
    try:
        if token.refusal:
            raise SettingsError(token.refusal)
        if not os.path.isdir(request.model_dir):
            raise ServeError(f"its directory {request.model_dir} is gone: was it unregistered?")
        if token.ordinary:
            ordinary = OrdinaryModel(request, handler, token.arguments)
            if refusals := take_refusals():
                ordinary.close()
                raise NotPoolable(refusals[0])
            model = _Loaded(
                ordinary.service,
                ordinary.view,
                ordinary.directory,
                ordinary.close,
                ordinary=True,
                state=token.state,
                weights=str(ordinary.weights),
            )
        else:
            model = _load_hermetic(request, handler, token)
        if conflict := take_conflict(request.model_dir):  # its code has gone on in spite of it
            model.close()
            raise NotPoolable(conflict)
    except (Exception, SystemExit, _interpool.CallInterrupted) as error:
        note(error)
        code = load_failure_code(error)
        failed = f"Model {name!r} could not be loaded"
        text, unnamed = (f"{failed}: {describe(error, named=named)}" for named in (True, False))
        logger.exception("Load model %s failed with %d: %s", name, code, text)
        if found := _look(request.model_dir, token, thoroughly=True):
            _interpool.retire_interpreter()  # nobody is to meet what is left of it
            if request.model_dir not in found:
                raise _Elsewhere(f"it could not be loaded beside a model of which {found}") from None
        if conflict := conflict or take_conflict(request.model_dir):  # in other interpreters it may well load
            raise _LoadError(503, text, conflict) from None
        _report(token, "load_failed", text, began, model=name)
        raise _LoadError(code, "System out of memory" if code == 507 else text, unnamed=unnamed) from None
    service: Any = model.service
    service._entry_point = noting(service._entry_point)  # TorchServe's: it answers what this raises by itself
    _report(token, "loaded", began=began, model=name)
    found = _look(request.model_dir, token, thoroughly=True)
    return replace(model, traces=found.get(request.model_dir, ""))


# ---- what models leave here -------------------------------------------------------------------


def _is_touched_by_another(token: WorkerToken) -> bool:
    """Whether the model that was called here before this one has changed what this one uses."""
    global _last
    before, _last = _last, token
    if before is None or _has_one_model or before.model_dir == token.model_dir:
        return False
    reason = _neighbourhood.look(at_once=True)
    if not reason or before.unwatched:
        return False
    _give_to({before.model_dir: before}, reason)
    return True


def _look(directory: str, token: WorkerToken, thoroughly: bool) -> dict[str, str]:
    """See what models have left here since the last look; no other model meets it from now on.

    Args:
        directory: of the model that is in place.
        token: of its worker.
        thoroughly: whether all is looked at, as it is now and then.

    Returns:
        What it is, by the directories of the models that it may be of; empty if there is nothing.
    """
    if token.unwatched:
        _unwatched.add(directory)
    if _has_one_model or token.unwatched:
        return {}
    _served[directory] = token
    thoroughly = thoroughly or _neighbourhood.thorough_look_is_due
    if reason := _neighbourhood.look(at_once=thoroughly):
        return _give_to({directory: token}, reason)
    if not thoroughly:
        return {}
    take_out()
    found, served = _neighbourhood.look_thoroughly(_unwatched), _served.copy()
    _served.clear()
    if found is None:
        return {}
    authors = {
        one: whose
        for one, whose in served.items()
        if "" in found.paths or any(f"{path}/".startswith(f"{one}/") for path in found.paths)
    }
    return _give_to(authors or served, found.text)


def _give_to(authors: dict[str, WorkerToken], reason: str) -> dict[str, str]:
    """Have these models served by interpreters of their own: this one, if only one of them has left traces.

    Returns:
        The reason for each, by directory.
    """
    global _has_one_model
    for token in authors.values():
        Report("traces", token.pid, interpreter_id() or 0, reason=reason).send(token.reports)
    (directory, *others) = authors
    if others or not os.path.isdir(directory):  # several may have, or none that is still served
        _interpool.retire_interpreter()
    else:
        _interpool.claim_interpreter(directory)
        _has_one_model = True
    return dict.fromkeys(authors, reason)


def leave(directory: str) -> bool:
    """Unload the model in that directory: it is served by interpreters of its own from now on.

    Returns:
        Whether it is gone; not if this interpreter is its own.
    """
    if _has_one_model:
        return False
    drop(directory)
    take_out()
    if _neighbourhood.look(at_once=True) or _neighbourhood.look_thoroughly(_unwatched):
        _interpool.retire_interpreter()
    return True


def _load_hermetic(request: LoadRequest, handler: str, token: WorkerToken) -> _Loaded:
    _require_no_other_handler(handler)
    wrapper = _envelope(request.envelope)
    view = ProcessView(request.model_dir if token.own_directory else None)
    with view.entered(token.arguments):
        model, context = _interpool.call_interruptible(load_model, request, token.admission)
        try:
            view.loaded()
        except BaseException:  # it has chosen a default device that is not here, say
            model.close()
            raise
    service = _PoolService(model, context, wrapper)

    def close() -> None:
        model.close()
        view.close()

    return _Loaded(service, view, model.directory, close, ordinary=False, state=token.state)


def _require_no_other_handler(handler: str) -> None:
    if handler.partition(":")[0].removesuffix(".py") != HANDLER_STEM:
        raise ServeError(
            f"it was registered with the handler {handler!r}, but its archive is hermetic: "
            "register it without a handler, or make an archive with that handler"
        )


def _envelope(name: str) -> type[Any] | None:
    """TorchServe's wrapper of that name for requests and answers, as its own loader finds it."""
    found: type[Any] | None = TsModelLoader()._load_default_envelope(name) if name else None
    return found


def _unload(keys: Iterable[_Key]) -> None:
    gone = [_models.pop(key) for key in keys]
    for model in gone:
        model.close()
    if gone:
        del model
        gone.clear()
        gc.collect()  # a model's importer, or modules, refer to each other


def _unload_all() -> None:
    """Unload every model: this interpreter is parked. What is needed is loaded again."""
    _unload(list(_models))


when_parked(_unload_all)


def _sweep_now_and_then() -> None:
    global _next_sweep
    now = time.monotonic()
    if now >= _next_sweep:
        _next_sweep = now + SWEEP_S
        sweep()


def sweep() -> None:
    """Unload models whose directory is gone (unregistering removes it), and those in states that ended."""
    gone = [
        key
        for key, model in _models.items()
        if model.state in _ended_states or not os.path.isdir(model.directory)
    ]
    if gone:
        _unload(gone)
        # The allocator would keep what lies between blocks in use.
        give_memory_back()


def end_states(numbers: str) -> None:
    """Note states that no worker has any more; the next sweep unloads the models in them.

    Called beside whatever runs here: nothing is unloaded yet.
    """
    _ended_states.extend(map(int, numbers.split()))


def drop(directory: str, own_states: bool = False) -> None:
    """Unload the model in that directory; its next batch in this interpreter loads it again.

    Workers with states of their own keep them, unless ``own_states``.
    """
    _unload(
        [
            key
            for key, model in _models.items()
            if model.directory == directory and (own_states or not key.state)
        ]
    )
    give_memory_back()


def warm(worker: str, load_command: bytes) -> bool:
    """Load a worker's model ahead of its first batch in this interpreter; False if that fails.

    Args:
        worker: the host's WorkerToken for the worker, as text.
        load_command: the first frame of the worker's connection.
    """
    token = WorkerToken.of_text(worker)
    with stdio.to_worker(token.stdout, token.stderr):
        try:
            _model(_key(bytes(load_command), token), token)
        except _LoadError:
            _report_lost_device(token)
            return False
    return True
