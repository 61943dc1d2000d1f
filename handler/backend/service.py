"""TorchServe's backend for one frame, inside a private interpreter.

The pool calls ``answer`` for every frame that TorchServe's frontend sends to a worker. It does
what TorchServe's own worker does with it (``TorchModelServiceWorker.load_model`` and
``handle_connection``), with TorchServe's own code for decoding, loading, predicting and
encoding, and differs where one process per worker was taken for granted:

- any interpreter may get a worker's next batch, so a model is loaded from the connection's
  first frame wherever it is first needed, once per interpreter and not per worker;
- what a call prints or logs goes to its own worker's pipes;
- a failed load says what failed; a call that ends the worker's process in TorchServe ends the
  worker's connection here;
- the working directory is the process's and not the model's.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import sys
import time
from functools import lru_cache
from typing import Any, NamedTuple

from ts.model_loader import ModelLoaderFactory
from ts.protocol.otf_message_handler import (
    LOAD_MSG,
    create_load_model_response,
    create_predict_response,
    retrieve_msg,
)
from ts.service import Service

from interpool.handler.admission import Admission, admitting
from interpool.handler.backend import stdio
from interpool.handler.backend.failures import describe
from interpool.handler.backend.metrics import ModelMetrics
from interpool.handler.backend.model import model_directory, package_path
from interpool.handler.backend.modules import installed_handler
from interpool.handler.backend.wire import FrameReader, ReplyWriter
from interpool.handler.errors import ServeError, SettingsError, load_failure_code, predict_failure_code
from interpool.handler.frontend.shim import HANDLER_STEM
from interpool.handler.parting import part
from interpool.native.inside.packages import close_package
from interpool.native.inside.parking import when_parked

SWEEP_S = 5.0
# TorchServe's worker logs to the root logger, without names: so do its lines here.
logger = logging.getLogger()


class _Worker(NamedTuple):
    """The part of the host's worker token (JSON) that is needed here."""

    stdout: int
    stderr: int
    metrics_config: str
    refusal: str
    parting: int
    admission: dict[str, Any]


class _Model(NamedTuple):
    """What decides whether two workers can share one loaded service in an interpreter."""

    hello: bytes
    metrics_config: str


class _LoadError(Exception):
    """A model could not be loaded: the code and the text of the answer."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


_services: dict[_Model, Service] = {}
_next_sweep = 0.0


def _set_up() -> None:
    """Once per interpreter: what the top of TorchServe's worker script does."""
    stdio.install()
    logging.basicConfig(stream=sys.stdout, format="%(message)s", level=logging.INFO, force=True)


_set_up()


def answer(worker: str, fd: int, hello: bytes, frame: bytes) -> tuple[bytes, bool]:
    """Answer one frame.

    Args:
        worker: the host's token for the worker, JSON.
        fd: the connection, for handlers that stream replies before the last one.
        hello: the connection's first frame, TorchServe's load command.
        frame: this frame, whole.

    Returns:
        The reply's bytes, and whether the connection stays open. TorchServe restarts a worker
        whose connection ends.
    """
    token = _parse_worker(worker)
    with stdio.to_worker(token.stdout, token.stderr):
        try:
            return _answer(token, fd, bytes(hello), bytes(frame))
        except (Exception, SystemExit, KeyboardInterrupt):
            logger.exception("Backend worker process died.")
            return b"", False


@lru_cache(maxsize=1024)
def _parse_worker(worker: str) -> _Worker:
    fields = json.loads(worker)
    return _Worker(**{name: fields[name] for name in _Worker._fields})


def _answer(token: _Worker, fd: int, hello: bytes, frame: bytes) -> tuple[bytes, bool]:
    _sweep_now_and_then()
    model = _Model(hello, token.metrics_config)
    command, message = retrieve_msg(FrameReader(frame))
    if command == LOAD_MSG:
        try:
            _service(model, token)
        except _LoadError as error:
            # An archive or a setting that is at fault is so for every worker of the model.
            part(token.parting, whole_model=error.code == 400)
            return bytes(create_load_model_response(error.code, error.text)), False
        name = message["modelName"].decode()
        return bytes(create_load_model_response(200, f"loaded model {name}")), True
    try:
        service = _service(model, token)
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


def _service(model: _Model, token: _Worker) -> Service:
    """The loaded service in this interpreter; raises _LoadError."""
    service = _services.get(model)
    if service is None:
        service = _services[model] = _load(model, token)
    return service


def _load(model: _Model, token: _Worker) -> Service:
    """Load a model as ``TorchModelServiceWorker.load_model`` does; raises _LoadError."""
    _, request = retrieve_msg(FrameReader(model.hello))
    model_name = request["modelName"].decode()
    model_dir = request["modelPath"].decode()
    handler = request["handler"].decode()
    batch_size = int(request["batchSize"])
    logger.info("model_name: %s, batchSize: %d", model_name, batch_size)
    try:
        if token.refusal:
            raise SettingsError(token.refusal)
        if handler.partition(":")[0].removesuffix(".py") != HANDLER_STEM:
            raise ServeError(
                f"it was registered with the handler {handler!r}, but its archive is hermetic: "
                "register it without a handler, or make an archive with that handler"
            )
        if not os.path.isdir(model_dir):
            raise ServeError(f"its directory {model_dir} is gone: was it unregistered?")
        with installed_handler(), admitting(Admission.of_dict(token.admission)):
            return ModelLoaderFactory.get_model_loader().load(
                model_name,
                model_dir,
                handler,
                request.get("gpu"),
                batch_size,
                request["envelope"].decode() or None,
                bool(request["limitMaxImagePixels"]),
                ModelMetrics.of_model(model_name, model.metrics_config),
            )
    except (Exception, SystemExit) as error:
        code = load_failure_code(error)
        text = f"Model {model_name!r} could not be loaded: {describe(error)}"
        logger.exception("Load model %s failed with %d: %s", model_name, code, text)
        raise _LoadError(code, "System out of memory" if code == 507 else text) from None


def _let_go() -> None:
    """Of every model: this interpreter is parked. What is needed is loaded again."""
    _services.clear()


when_parked(_let_go)


def _sweep_now_and_then() -> None:
    global _next_sweep
    now = time.monotonic()
    if now >= _next_sweep:
        _next_sweep = now + SWEEP_S
        sweep()


def sweep() -> None:
    """Let go of models whose directory is gone: unregistering a model removes it."""
    gone = [m for m, s in _services.items() if not os.path.isdir(model_directory(s.context))]
    for model in gone:
        close_package(package_path(_services.pop(model).context))
    if gone:
        gc.collect()  # a package's importer and its modules refer to each other
