"""Loads an ordinary archive's model in this interpreter, by TorchServe's own loader and in its own scope.

An ordinary archive was made without interpool. It names a handler file of its own or one of TorchServe's, and
assumes that it has a process to itself.
"""

from __future__ import annotations

import os
from typing import Any

from ts.model_loader import TsModelLoader
from ts.service import Service

import _interpool
from interpool.handler.backend.load_request import LoadRequest
from interpool.handler.backend.metrics import ModelMetrics
from interpool.handler.backend.process_view import ProcessView
from interpool.handler.errors import NotPoolable
from interpool.handler.frontend.shim import python_path_of
from interpool.native.inside.module_scope import ModuleConflict, ModuleScope
from interpool.native.inside.weights import share_weights, sharing_loads


class OrdinaryModel:
    """One model of an ordinary archive.

    Args:
        request: which model, and how it is served.
        handler: the handler that the load command names.
        arguments: the ``sys.argv`` of the worker for which it is loaded.

    Attributes:
        directory: where TorchServe extracted the .mar.
        view: must be in place while the model is called.
        service: TorchServe's, for its calls.
        weights: what became of its weights' memory.

    Raises:
        NotPoolable: its directory contains a module that interpool has imported from elsewhere.
        BaseException: what its own code raises while it is loaded.
    """

    def __init__(self, request: LoadRequest, handler: str, arguments: list[str]) -> None:
        self.directory = request.model_dir
        beside = os.path.dirname(handler.partition(":")[0])
        first = [os.path.normpath(os.path.join(self.directory, beside))] if beside else []
        try:
            python_path = python_path_of(os.getpid(), os.environ.get("PYTHONPATH", ""))
            modules = ModuleScope(self.directory, first, python_path)
        except ModuleConflict as conflict:
            raise NotPoolable(f"{conflict}. Leave that file out, or rename it") from None
        self.view = ProcessView(self.directory, modules)
        try:
            with self.view.entered(arguments):
                with sharing_loads(self.directory):
                    self.service = _interpool.call_interruptible(self._load, request, handler)
                self.weights = share_weights(self.directory)
                self.view.loaded()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Remove its modules; the model is loaded anew when it is next needed."""
        self.view.close()

    @staticmethod
    def _load(request: LoadRequest, handler: str) -> Service:
        metrics: Any = ModelMetrics.of_model(request.model_name, request.metrics_config)
        return TsModelLoader().load(
            request.model_name,
            request.model_dir,
            handler,
            request.gpu,
            request.batch_size,
            request.envelope or None,
            request.limit_max_image_pixels,
            metrics,
        )
