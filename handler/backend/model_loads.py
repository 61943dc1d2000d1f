"""Loads a worker's model in this interpreter, or says why it cannot be loaded.

The load does what ``TorchModelServiceWorker.load_model`` does. It differs in two points:

- The handler file in a hermetic .mar is never run: only its name counts. So an archive that is refused has
  run nothing at all.
- TorchServe's own loader loads an ordinary archive, with modules of its own (``OrdinaryModel``).
"""

from __future__ import annotations

import logging
import os
import time
from dataclasses import replace
from typing import Any

from ts.context import Context
from ts.model_loader import TsModelLoader
from ts.protocol.otf_message_handler import retrieve_msg
from ts.service import Service

import _interpool
from interpool.handler.backend import loaded_models, neighbours, stdio
from interpool.handler.backend.error_text import describe
from interpool.handler.backend.host_reports import report, report_lost_device
from interpool.handler.backend.load_request import LoadRequest
from interpool.handler.backend.loaded_models import LoadedModel, ModelKey
from interpool.handler.backend.loading import load_model
from interpool.handler.backend.lost_devices import note, noting
from interpool.handler.backend.ordinary_model import OrdinaryModel
from interpool.handler.backend.packed_model import PackedModel
from interpool.handler.backend.process_view import ProcessView, take_out
from interpool.handler.backend.wire import FramePeeker, FrameReader
from interpool.handler.errors import NotPoolable, ServeError, SettingsError, load_failure_code
from interpool.handler.frontend.shim import HANDLER_STEM
from interpool.handler.worker_token import WorkerToken
from interpool.native.inside.refusals import take_conflict, take_refusals

# TorchServe's worker logs to the root logger.
logger = logging.getLogger()


class LoadError(Exception):
    """A model could not be loaded.

    Attributes:
        code: status of the answer, such as 503.
        text: of the answer.
        conflict: how another model in this interpreter prevents the load; "" if that is not the reason.
        unnamed: the text without the exception's type.
    """

    def __init__(self, code: int, text: str, conflict: str = "", unnamed: str = "") -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.conflict = conflict
        self.unnamed = unnamed


class Elsewhere(Exception):
    """Another interpreter must answer."""


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


def model_of(key: ModelKey, token: WorkerToken, is_trial: bool = False) -> LoadedModel:
    """Return a worker's model; load it if it is not loaded.

    Args:
        key: of the worker.
        token: of the worker.
        is_trial: whether the load's result decides what serves the model. If not, most of what the load
            leaves is searched for together with what the next call leaves.

    Raises:
        LoadError: it cannot be loaded.
        Elsewhere: it cannot be loaded in this interpreter, which another model has changed.
    """
    model = loaded_models.current(key, token)
    if model is None:
        loaded_models.sweep()  # an unregistered model must not be in its way
        with stdio.loading():
            model = loaded_models.loaded[key] = _load(key, token, is_trial)
    return model


def try_to_load(worker: str, source: int | bytes) -> tuple[str, str, str] | None:
    """Load a model for a worker.

    Args:
        worker: the host's WorkerToken for the worker, as text.
        source: the load command; or the descriptor of the socket that it waits in. It stays there.

    Returns:
        Three texts. Why it cannot be loaded in this interpreter, "" if it was. Why it must have interpreters
        of its own, "" if it need not. What became of its weights. None instead of them: it must be tried in
        another interpreter, as another model has changed this one.
    """
    token = WorkerToken.of_text(worker)
    if isinstance(source, int):
        reader = FramePeeker(source)
        retrieve_msg(reader)
        source = reader.frame
    with stdio.to_worker(token.stdout, token.stderr, token.model_dir):
        try:
            model = model_of(ModelKey.of_worker(source, token), token, is_trial=True)
        except LoadError as error:
            report_lost_device(token)
            return error.unnamed or error.text, error.conflict, ""
        except Elsewhere:
            return None
        return "", model.traces, model.weights


def warm(worker: str, load_command: bytes) -> bool:
    """Load a worker's model before its first batch in this interpreter.

    Args:
        worker: the host's WorkerToken for the worker, as text.
        load_command: the first frame of the worker's connection.

    Returns:
        Whether it is loaded.
    """
    token = WorkerToken.of_text(worker)
    with stdio.to_worker(token.stdout, token.stderr, token.model_dir):
        try:
            model_of(ModelKey.of_worker(bytes(load_command), token), token)
        except Elsewhere:
            return False
        except LoadError:
            report_lost_device(token)
            return False
    return True


def _load(key: ModelKey, token: WorkerToken, is_trial: bool) -> LoadedModel:
    """Load a model; see ``model_of`` for what this raises."""
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
    take_out()  # what is logged now is not for the model that was served before
    logger.info("model_name: %s, batchSize: %d", name, request.batch_size)
    take_refusals()
    take_conflict(request.model_dir)
    conflict = ""
    if not neighbours.watch(token):
        raise Elsewhere
    began = time.monotonic()
    if token.failed_load >= 0:  # a call of the worker's waits for this load
        report(token, "loading", model=name)
    try:
        if token.refusal:
            raise SettingsError(token.refusal)
        if not os.path.isdir(request.model_dir):
            raise ServeError(f"its directory {request.model_dir} is gone: was it unregistered?")
        model = (_load_ordinary if token.ordinary else _load_hermetic)(request, handler, token)
        if conflict := take_conflict(request.model_dir):  # the model's code has gone on in spite of it
            model.close()
            raise NotPoolable(conflict)
    except BaseException as error:
        note(error)
        code = load_failure_code(error)
        failed = f"Model {name!r} could not be loaded"
        text, unnamed = (f"{failed}: {describe(error, named=named)}" for named in (True, False))
        logger.exception("Load model %s failed with %d: %s", name, code, text)
        if found := neighbours.check_now(request.model_dir, token):
            _interpool.retire_interpreter()  # no other model may meet what the load left
            if request.model_dir not in found:
                raise Elsewhere from None
        if conflict := conflict or take_conflict(request.model_dir):  # other interpreters may load it
            raise LoadError(503, text, conflict) from None
        report(token, "load_failed", text, began, model=name)
        raise LoadError(code, "System out of memory" if code == 507 else text, unnamed=unnamed) from None
    service: Any = model.service
    service._entry_point = noting(service._entry_point)  # TorchServe's Service keeps what this raises
    report(token, "loaded", began=began, model=name)
    found = neighbours.check_now(request.model_dir, token, thoroughly=is_trial)
    return replace(model, traces=found.get(request.model_dir, ""))


def _load_ordinary(request: LoadRequest, handler: str, token: WorkerToken) -> LoadedModel:
    ordinary = OrdinaryModel(request, handler, token.arguments)
    if refusals := take_refusals():
        ordinary.close()
        raise NotPoolable(refusals[0])
    return LoadedModel(
        ordinary.service,
        ordinary.view,
        ordinary.directory,
        ordinary.close,
        ordinary=True,
        state=token.state,
        weights=str(ordinary.weights),
    )


def _load_hermetic(request: LoadRequest, handler: str, token: WorkerToken) -> LoadedModel:
    if handler.partition(":")[0].removesuffix(".py") != HANDLER_STEM:
        raise ServeError(
            f"it was registered with the handler {handler!r}, but its archive is hermetic: "
            "register it without a handler, or make an archive with that handler"
        )
    # TorchServe's wrapper of that name for requests and answers.
    envelope = TsModelLoader()._load_default_envelope(request.envelope) if request.envelope else None
    view = ProcessView(request.model_dir if token.own_directory else None)
    with view.entered(token.arguments):
        model, context = _interpool.call_interruptible(load_model, request, token.policy)
        try:
            view.loaded()
        except BaseException:  # it has chosen a default device that this machine lacks, for example
            model.close()
            raise

    def close() -> None:
        model.close()
        view.close()

    service = _PoolService(model, context, envelope)
    return LoadedModel(service, view, model.directory, close, ordinary=False, state=token.state)
