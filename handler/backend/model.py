"""From a hermetic .mar's package to something that answers batches.

In a private interpreter the package is opened there. In any other process, that is an
unchanged TorchServe worker, the batch is spread over a pool of that worker's own.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ts.utils.util import PredictionException

from interpool.handler.admission import Admission, current_admission
from interpool.handler.backend import requirements
from interpool.handler.backend.defaults import DefaultHandler
from interpool.handler.backend.failures import describe
from interpool.handler.errors import out_of_memory
from interpool.native.errors import ArchiveError


class Model(Protocol):
    """Answers a batch as a TorchServe handler does."""

    def handle(self, data: Sequence[dict[str, Any]], context: Any) -> list[Any]:
        """One answer per request."""
        ...


def open_model(context: Any) -> Model:
    """The model of the archive that ``context`` (TorchServe's) describes.

    Raises:
        ArchiveError: the package is missing, damaged, or refused (see Admission).
        Exception: whatever the package's own code raises while it is loaded.
    """
    from interpool.native.inside import interpreter_id

    if interpreter_id() is None:
        from interpool.handler.stock_worker.fanout import FannedOutModel

        return FannedOutModel(context)
    return PackedModel(context, current_admission())


def model_directory(context: Any) -> str:
    """Where TorchServe extracted the archive."""
    return str(context.system_properties["model_dir"])


def package_path(context: Any) -> str:
    """The archive's package file; raises ArchiveError if the manifest names none."""
    model_dir = model_directory(context)
    name = ((context.manifest or {}).get("model") or {}).get("serializedFile")
    if not name:
        raise ArchiveError(
            f"{model_dir}: the archive's manifest names no serializedFile; make it with "
            "torch-model-archiver --serialized-file MODEL.ptpkg"
        )
    return os.path.join(model_dir, name)


class PackedModel:
    """The package's entry in this interpreter, whatever kind it is.

    Args:
        context: TorchServe's.
        admission: what the package must prove before anything in it runs.

    Raises:
        ArchiveError: see open_model.
    """

    def __init__(self, context: Any, admission: Admission) -> None:
        from interpool.native.inside.packages import close_package, open_package

        self._name = context.model_name
        settings = (context.model_yaml_config or {}).get("interpool") or {}
        self._tracebacks = bool(settings.get("tracebacks"))
        path = package_path(context)
        if not os.path.isfile(path):
            raise ArchiveError(f"{path} is missing: the archive's manifest names it as serializedFile")
        if not admission.keys:  # a signature does not cover what pip installed beside the archive
            requirements.make_importable(model_directory(context), context.manifest)
        package = open_package(path)
        try:
            self._manifest = admission.check(package)
            admission.test(package, self._manifest)
            where = self._manifest["entry"]
            entry = package.load_pickle(where["package"], where["resource"])
            self._answer = self._answerer(entry, context)
        except BaseException:
            close_package(path)
            raise

    def handle(self, data: Sequence[dict[str, Any]], context: Any) -> list[Any]:
        """Answer a batch; a model's exception becomes one that names the model and itself.

        Raises PredictionException, or what TorchServe itself answers with 507.
        """
        if self._is_default and context.get_request_header(0, "explain") == "True":
            raise PredictionException(f"Model {self._name!r} has no explanations", 501)
        if self._is_default and context.get_request_header(0, "describe") == "True":
            return [self._describe()] * len(data)
        try:
            return self._answer(data, context)
        except PredictionException:
            raise
        except Exception as error:
            if out_of_memory(error):
                raise
            text = f"Model {self._name!r} raised {describe(error)}"
            if self._tracebacks:
                text += "\n" + "".join(traceback.format_exception(error))
            raise PredictionException(text, 503) from error

    def _describe(self) -> dict[str, Any]:
        """What GET /models/NAME?customized=true shows of a model without a handler of its own."""
        return {name: self._manifest[name] for name in ("entry", "made_with", "externs")}

    def _answerer(self, entry: Any, context: Any) -> Callable[..., list[Any]]:
        self._is_default = False
        stages = [getattr(entry, name, None) for name in ("preprocess", "inference", "postprocess")]
        if callable(getattr(entry, "handle", None)) or all(map(callable, stages)):
            if callable(getattr(entry, "initialize", None)):
                entry.initialize(context)
            return entry.handle if hasattr(entry, "handle") else _pipeline(*stages)
        if not callable(entry):
            raise ArchiveError(
                f"{package_path(context)}: its entry is a {type(entry).__qualname__}, which cannot "
                "be called and has no handle()"
            )
        self._is_default = True
        default = DefaultHandler(entry, self._name, tracebacks=self._tracebacks)
        return default.handle


def _pipeline(preprocess: Any, inference: Any, postprocess: Any) -> Callable[..., list[Any]]:
    def handle(data: Sequence[dict[str, Any]], _context: Any) -> list[Any]:
        answers: list[Any] = postprocess(inference(preprocess(data)))
        return answers

    return handle
