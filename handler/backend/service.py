"""TorchServe's backend for one frame, inside a private interpreter.

The pool calls a ``WorkerService`` for every frame that TorchServe's frontend sends to a worker. It does
what TorchServe's own worker does with it (``TorchModelServiceWorker.load_model`` and
``handle_connection``). TorchServe's own code predicts; it also decodes and encodes all that is unusual
(``codec``). The service differs where TorchServe relies on one process per worker:

- Any interpreter may answer a worker's next batch. The connection's first frame, the load command, loads
  the model there (``model_loads``), and ``loaded_models`` says when it is unloaded.
- Each model has its own view of what a process has once (``process_view``).
- What a call prints or logs goes to its own worker's pipes (``stdio``).
- A failed load says what failed. A call that would end the worker's process in TorchServe ends the worker's
  connection here.

The host calls the functions that this module exports by their names.
"""

from __future__ import annotations

import logging
import os
import sys
import weakref
from collections.abc import Callable

from ts.protocol.otf_message_handler import LOAD_MSG, create_load_model_response, create_predict_response

import _interpool
from interpool.handler.backend import codec, loaded_models, neighbours, plain_logging, stdio
from interpool.handler.backend.codec import Batch, receive_batch, request_ids, take_batch
from interpool.handler.backend.error_text import describe
from interpool.handler.backend.host_reports import report, report_lost_device
from interpool.handler.backend.loaded_models import LoadedModel, ModelKey, drop, end_states, sweep
from interpool.handler.backend.model_loads import Elsewhere, LoadError, model_of, try_to_load, warm
from interpool.handler.backend.neighbours import leave
from interpool.handler.backend.process_view import take_out
from interpool.handler.backend.wire import ReplyWriter
from interpool.handler.errors import CALL_LIMIT_CODE, predict_failure_code
from interpool.handler.failed_load import ask_for_own_interpreters, ask_for_own_process, end_shims
from interpool.handler.worker_token import WorkerToken
from interpool.native.inside.refusals import take_conflict, take_refusals
from interpool.native.upstream.cpython_private import filter_warnings

__all__ = ["WorkerService", "drop", "end_states", "leave", "sweep", "try_to_load", "warm"]

_LOAD = LOAD_MSG[0]
# TorchServe's worker logs to the root logger.
logger = logging.getLogger()


def _set_up() -> None:
    """Do what Python and the top of TorchServe's worker script do at their start. Once per interpreter."""
    stdio.install()
    codec.install()
    # Private interpreters read no variables of Python's.
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    filter_warnings(os.environ.get("PYTHONWARNINGS", ""))
    plain_logging.install()


_set_up()


class WorkerService:
    """Answers one worker's connection in this interpreter. The connection's first message here makes it.

    Args:
        worker: the host's WorkerToken for the worker, as text.
        load_command: the connection's first frame.
    """

    def __init__(self, worker: str, load_command: bytes) -> None:
        self._token = token = WorkerToken.of_text(worker)
        self._key = ModelKey.of_worker(load_command, token)
        self._lines = stdio.to_worker(token.stdout, token.stderr, token.model_dir, token.notes, token.metrics)
        self._replies = ReplyWriter(_interpool.send_part, self._lines.flush, self._answers)
        self._batch: Batch = []  # of the running call
        # Weak: a silent connection must not keep an unloaded model in memory.
        self._model: Callable[[], LoadedModel | None] = _no_model

    def __call__(self, frame: bytes | memoryview) -> tuple[bytes | bytearray, bool] | None:
        """Answer one frame, of which nothing is kept.

        Returns:
            The reply's bytes, and whether the connection stays open. TorchServe restarts a worker
            whose connection ends. None: another interpreter must answer, as a model has changed this one.
        """
        if neighbours.is_touched_by_another(self._token):
            return None
        with self._lines:
            try:
                return self._answer(frame)
            except Elsewhere:
                return None
            except BaseException as error:
                # As TorchServe's own worker, which ends silently by SystemExit only.
                if not (isinstance(error, SystemExit) and self._token.ordinary):
                    logger.exception("Backend worker process died.")
                report(self._token, "ended", f"a worker of {self.model_name!r} ended: {describe(error)}")
                return b"", False

    def _answer(self, frame: bytes | memoryview) -> tuple[bytes | bytearray, bool]:
        loaded_models.sweep_if_due()
        if frame[0] == _LOAD:
            return self._load()
        token, model, requests = self._token, self._model(), None
        if model is None:
            take_out()  # what is logged now is not for the model that was served before
            requests = receive_batch(frame)
            try:
                model = self._loaded_again()
            except LoadError as error:
                if report_lost_device(token):
                    return _refusal(requests, error.text, error.code), False
                if token.ordinary:  # other interpreters have loaded it: a process of its own can load it, too
                    ask_for_own_process(token.failed_load, error.text)
                return self._not_loaded(requests, error.text, error.code), not token.ordinary
        if model.state > token.state:
            return b"", False  # the worker has ended: its requests must not change the next one's state
        model.service.set_cl_socket(self._replies)
        view = model.view
        batch: Batch = []
        take_refusals()  # those of other models' calls and threads
        try:
            view.enter(token.arguments)
            try:
                self._batch = batch = take_batch(frame) if requests is None else requests
                reply = self._run(model, batch)
            finally:
                with self._replies.sending:
                    self._batch = []
                view.leave()
        except BaseException as error:
            # It may have left anything. That can be attributed to its model only while the model is loaded.
            neighbours.check_now(model.directory, token)
            if not isinstance(error, _interpool.CallInterrupted):
                raise
            self._serve_apart(take_conflict(model.directory))
            return self._interrupted(batch, error), True
        if report_lost_device(token):
            return reply, False
        if model.ordinary and (refusals := take_refusals()):
            logger.error("interpool: served by worker processes of its own from now on: %s", refusals[0])
            ask_for_own_process(token.failed_load, refusals[0])
            return reply, False
        self._serve_apart(take_conflict(model.directory))
        neighbours.note_call(model.directory, token, is_first=not model.is_called)
        model.is_called = True
        return reply, True

    def _answers(self, request: str) -> bool:
        return request in request_ids(self._batch).values()

    def _run(self, model: LoadedModel, batch: Batch) -> bytes | bytearray:
        return _interpool.call_interruptible(_predict, model, batch)

    def _not_loaded(self, requests: Batch, text: str, code: int) -> bytes:
        return _refusal(requests, text, code)

    @property
    def model_name(self) -> str:
        """The name that its model is registered by."""
        return self._key.model_name

    def _is_loaded(self) -> bool:
        """Return whether another worker has loaded the model here."""
        return self._key in loaded_models.loaded

    def _serve_apart(self, conflict: str) -> None:
        """Let interpreters of its own serve the model if it has a conflict with another model in this one."""
        if conflict:
            ask_for_own_interpreters(self._token.failed_load, conflict)

    def _interrupted(self, batch: Batch, error: BaseException) -> bytes:
        """Answer a call that took too long. Unload the model, which may be half changed."""
        text = f"Model {self.model_name!r}: the call took longer than it may, and was interrupted"
        logger.error("interpool: %s. The model is loaded anew in this interpreter", text, exc_info=error)
        loaded_models.unload(loaded_models.loaded.keys() & {self._key})
        return _refusal(batch, text, CALL_LIMIT_CODE)

    def _load(self) -> tuple[bytes, bool]:
        token = self._token
        try:
            self._loaded()
        except LoadError as error:
            report(token, "not_started", model=self.model_name)
            # A faulty archive or setting fails every worker of the model.
            end_shims(token.failed_load, whole_model=error.code == 400)
            report_lost_device(token)
            return bytes(create_load_model_response(error.code, error.text)), False
        report(token, "started", model=self.model_name)
        text = f"loaded model {self.model_name}"
        return bytes(create_load_model_response(200, text)), True

    def _loaded_again(self) -> LoadedModel:
        """Return the model, which another worker may have loaded meanwhile; see ``model_of``."""
        if self._token.own_state and not self._is_loaded():
            logger.warning(
                "interpool: the interpreter that this worker's batches ran in is lost; its state begins anew"
            )
        return self._loaded()

    def _loaded(self) -> LoadedModel:
        """Return the model; see ``model_of``."""
        try:
            model = model_of(self._key, self._token)
        except LoadError as error:
            self._serve_apart(error.conflict)
            if error.conflict:
                raise Elsewhere from None
            raise
        self._model = weakref.ref(model)
        return model


def _no_model() -> None:
    """Stand for a reference to a model before there is one."""


def _predict(model: LoadedModel, batch: Batch) -> bytes | bytearray:
    try:
        reply = model.service.predict(batch)
        return reply if type(reply) is bytearray else bytes(reply)
    except Exception as error:
        if model.ordinary:
            raise
        # TorchServe's worker would end because of what its encoder does not expect in a model's answer.
        name = model.service.context.model_name
        logger.exception("The answer of model %s cannot be sent", name)
        text = f"Model {name!r}: its answer cannot be sent: {describe(error)}"
        return _refusal(batch, text, predict_failure_code(error))


def _refusal(batch: Batch, text: str, code: int) -> bytes:
    return bytes(create_predict_response(None, request_ids(batch), text, code))
