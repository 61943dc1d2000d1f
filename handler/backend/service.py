"""TorchServe's backend for one frame, inside a private interpreter.

The pool calls ``answer`` for every frame that TorchServe's frontend sends to a worker. It does
what TorchServe's own worker does with it (``TorchModelServiceWorker.load_model`` and
``handle_connection``), with TorchServe's own code for decoding, predicting and encoding, and
differs where one process per worker was taken for granted:

- any interpreter may get a worker's next batch, so a model is loaded from the connection's
  first frame, the load command, wherever it is first needed, once per interpreter and not per
  worker;
- the handler file in a .mar is a name and nothing more: it makes the archive hermetic, and what
  it holds is never run here. So an archive that is refused has run nothing at all;
- what a call prints or logs goes to its own worker's pipes;
- a failed load says what failed; a call that ends the worker's process in TorchServe ends the
  worker's connection here;
- the working directory is the process's and not the model's.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import time
from functools import lru_cache
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

from interpool.handler.backend import stdio
from interpool.handler.backend.error_text import describe
from interpool.handler.backend.load_request import LoadRequest
from interpool.handler.backend.loading import load_model
from interpool.handler.backend.model import PackedModel
from interpool.handler.backend.wire import FrameReader, ReplyWriter
from interpool.handler.errors import ServeError, SettingsError, load_failure_code, predict_failure_code
from interpool.handler.failed_load import end_shims
from interpool.handler.frontend.shim import HANDLER_STEM
from interpool.handler.worker_token import WorkerToken
from interpool.native.inside.parking import when_parked

SWEEP_S = 5.0
# TorchServe's worker logs to the root logger, without names: so do its lines here.
logger = logging.getLogger()


class _Key(NamedTuple):
    """What decides whether two workers can share one loaded model in an interpreter."""

    load_command: bytes
    metrics_config: str
    tracebacks: bool


class _PoolService(Service):  # type: ignore[misc]
    """TorchServe's Service for a model that is loaded already.

    Service's own ``__init__`` would make another context than the one that ``load_model`` made.
    """

    def __init__(self, model: PackedModel, context: Context, envelope: type[Any] | None) -> None:
        self.model = model
        self._context = context
        self._entry_point = envelope(model.handle).handle if envelope else model.handle


class _LoadError(Exception):
    """A model could not be loaded: the code and the text of the answer."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


_token = lru_cache(maxsize=1024)(WorkerToken.of_text)
_services: dict[_Key, _PoolService] = {}
_next_sweep = 0.0


def _set_up() -> None:
    """Once per interpreter: what the top of TorchServe's worker script does."""
    stdio.install()
    logging.basicConfig(stream=sys.stdout, format="%(message)s", level=logging.INFO, force=True)


_set_up()


def answer(worker: str, fd: int, load_command: bytes, frame: bytes) -> tuple[bytes, bool]:
    """Answer one frame.

    Args:
        worker: the host's WorkerToken for the worker, as text.
        fd: the connection, for handlers that stream replies before the last one.
        load_command: the connection's first frame.
        frame: this frame, whole.

    Returns:
        The reply's bytes, and whether the connection stays open. TorchServe restarts a worker
        whose connection ends.
    """
    token = _token(worker)
    with stdio.to_worker(token.stdout, token.stderr):
        try:
            return _answer(token, fd, bytes(load_command), bytes(frame))
        except (Exception, SystemExit, KeyboardInterrupt):
            logger.exception("Backend worker process died.")
            return b"", False


def _answer(token: WorkerToken, fd: int, load_command: bytes, frame: bytes) -> tuple[bytes, bool]:
    _sweep_now_and_then()
    key = _Key(load_command, token.metrics_config, token.tracebacks)
    command, message = retrieve_msg(FrameReader(frame))
    if command == LOAD_MSG:
        try:
            _service(key, token)
        except _LoadError as error:
            # A faulty archive or setting fails every worker of the model.
            end_shims(token.failed_load, whole_model=error.code == 400)
            return bytes(create_load_model_response(error.code, error.text)), False
        name = message["modelName"].decode()
        return bytes(create_load_model_response(200, f"loaded model {name}")), True
    try:
        service = _service(key, token)
    except _LoadError as error:
        return _refusal(message, error.text, error.code), True
    service.set_cl_socket(ReplyWriter(fd))
    try:
        return bytes(service.predict(message)), True
    except Exception as error:
        # TorchServe's worker dies of what its encoder does not expect in a model's answer.
        logger.exception("The answer of model %s cannot be sent", service.context.model_name)
        text = f"Model {service.context.model_name!r}: its answer cannot be sent: {describe(error)}"
        return _refusal(message, text, predict_failure_code(error)), True


def _refusal(requests: list[dict[str, Any]], text: str, code: int) -> bytes:
    ids = {index: request["requestId"].decode() for index, request in enumerate(requests)}
    return bytes(create_predict_response(None, ids, text, code))


# ---- loading ----------------------------------------------------------------------------------


def _service(key: _Key, token: WorkerToken) -> _PoolService:
    """The loaded service in this interpreter; raises _LoadError."""
    service = _services.get(key)
    if service is None:
        service = _services[key] = _load(key, token)
    return service


def _load(key: _Key, token: WorkerToken) -> _PoolService:
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
    )
    name = request.model_name
    logger.info("model_name: %s, batchSize: %d", name, request.batch_size)
    try:
        if token.refusal:
            raise SettingsError(token.refusal)
        _require_no_other_handler(command["handler"].decode())
        if not os.path.isdir(request.model_dir):
            raise ServeError(f"its directory {request.model_dir} is gone: was it unregistered?")
        envelope = _envelope(command["envelope"].decode())
        model, context = load_model(request, token.admission)
        return _PoolService(model, context, envelope)
    except (Exception, SystemExit) as error:
        code = load_failure_code(error)
        text = f"Model {name!r} could not be loaded: {describe(error)}"
        logger.exception("Load model %s failed with %d: %s", name, code, text)
        raise _LoadError(code, "System out of memory" if code == 507 else text) from None


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


def _unload_all() -> None:
    """Unload every model: this interpreter is parked. What is needed is loaded again."""
    _services.clear()


when_parked(_unload_all)


def _sweep_now_and_then() -> None:
    global _next_sweep
    now = time.monotonic()
    if now >= _next_sweep:
        _next_sweep = now + SWEEP_S
        sweep()


def sweep() -> None:
    """Unload models whose directory is gone: unregistering a model removes it."""
    gone = [key for key, service in _services.items() if not os.path.isdir(service.model.directory)]
    for key in gone:
        _services.pop(key).model.close()
    if gone:
        gc.collect()  # a package's importer and its modules refer to each other
