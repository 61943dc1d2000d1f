"""A hermetic model behind an unchanged TorchServe: a pool inside each of its workers.

The worker is TorchServe's own: one process, one batch at a time. Its batch is cut into one shard
per interpreter, and the shards run at the same time. A worker with a state of its own has one
interpreter, and one shard. This is correct and costs every worker a pool of its own;
``interpool serve`` shares one pool between all workers of all models.

Handlers that stream intermediate replies need the pool host.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

from ts.utils.util import PredictionException

from interpool.handler.backend.load_request import LoadRequest
from interpool.handler.config import HostSettings, ModelSettings
from interpool.handler.signature_policy import SignaturePolicy
from interpool.native.errors import RemoteError
from interpool.native.pool.manager import InterpreterManager

_MODULE = "interpool.handler.stock_worker.shard"


class FannedOutModel:
    """The model in each of a pool's interpreters."""

    def __init__(self, context: Any) -> None:
        properties = context.system_properties
        self._model_dir = str(properties["model_dir"])
        model, host = ModelSettings.of_model(self._model_dir), HostSettings.of_environment()
        # A state that is the worker's is one interpreter's.
        count = 1 if model.state == "worker" else model.interpreters or host.interpreters
        self._manager = InterpreterManager(count)
        self._threads = ThreadPoolExecutor(len(self._manager), "interpool-shard")
        request = LoadRequest(
            model_name=context.model_name,
            model_dir=self._model_dir,
            batch_size=properties["batch_size"],
            gpu=properties["gpu_id"],
            limit_max_image_pixels=properties["limit_max_image_pixels"],
            metrics_config=context.metrics.config_file_path,
            tracebacks=model.tracebacks,
        )
        policy = SignaturePolicy.of(host, model)
        self._model = json.dumps({"request": asdict(request), "policy": asdict(policy)})
        self._call("load")  # a package that cannot be loaded must fail here, not at a request

    def handle(self, data: Sequence[dict[str, Any]], context: Any) -> list[Any]:
        """Answer a batch; raises PredictionException if the model refuses all of a shard."""
        if not data:
            return []
        size = math.ceil(len(data) / len(self._manager))
        starts = range(0, len(data), size)
        jobs = [self._threads.submit(self._shard, data, context, at, at + size) for at in starts]
        answers: list[Any] = []
        for job in jobs:
            for code, phrase, headers, body in job.result():
                index = len(answers)
                context.set_response_status(code, phrase, index)
                for name, value in headers.items():
                    context.set_response_header(index, name, value)
                answers.append(body)
        return answers

    def _shard(
        self, data: Sequence[dict[str, Any]], context: Any, start: int, end: int
    ) -> list[tuple[int, str | None, dict[str, str], Any]]:
        indices = range(start, min(end, len(data)))
        rows = [{k: bytes(v) if isinstance(v, bytearray) else v for k, v in data[i].items()} for i in indices]
        headers = [dict(context.get_all_request_header(i)) for i in indices]
        ids = [context.get_request_id(i) or "" for i in indices]
        outcome = self._call("answer", rows, headers, ids)
        if "error" in outcome:
            raise PredictionException(outcome["error"], outcome["code"])
        answers: list[tuple[int, str | None, dict[str, str], Any]] = outcome["answers"]
        return answers

    def _call(self, function: str, *arguments: Any) -> Any:
        with self._manager.acquire_session(affinity=self._model_dir) as session:
            try:
                return session.global_(_MODULE, function)(self._model, *arguments).to_value()
            except RemoteError as error:
                if error.type_name == "MemoryError":
                    raise MemoryError(error.message) from error
                raise
