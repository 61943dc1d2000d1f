"""Opens a hermetic .mar's package in this interpreter, and answers batches with its entry."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from ts.utils.util import PredictionException

from interpool.archiver_ext.verify.handlers import handler_of, is_handler
from interpool.handler.backend.defaults import DefaultHandler
from interpool.handler.backend.envelopes import ENVELOPES
from interpool.handler.backend.error_text import describe, traceback_text
from interpool.handler.backend.example_requests import Form, call_of
from interpool.handler.backend.inputs import Arguments
from interpool.handler.backend.model_requirements import make_importable
from interpool.handler.backend.outputs import sendable
from interpool.handler.errors import InputError, predict_failure_code
from interpool.handler.signature_policy import SignaturePolicy
from interpool.native.errors import ArchiveError
from interpool.native.inside.packages import HermeticPackage, close_package, open_package

logger = logging.getLogger()
_users: Counter[str] = Counter()  # models of this interpreter by their package's path


class PackedModel:
    """The package's entry in this interpreter, of any kind.

    Args:
        context: TorchServe's context for the model.
        policy: what the package must prove before anything in it runs.
        tracebacks: whether answers contain the traceback of what the model raised.
        envelope: TorchServe's request envelope, for a model that is no handler; "" for none. TorchServe's own
            class wraps handlers.
        alone: whether the entry is made anew, so that no other worker shares it; its modules are shared.
        most_answer_bytes: TorchServe's max_response_size; 0: there is no bound.

    Attributes:
        directory: where TorchServe extracted the .mar. TorchServe removes it when the model is unregistered.
        entry: the object that the archive serves.
        takes_envelope: whether the model handles its envelope itself.

    Raises:
        ArchiveError: the package is missing, damaged, or refused (see SignaturePolicy).
        Exception: what the package's own code raises while it is loaded.
    """

    def __init__(
        self,
        context: Any,
        policy: SignaturePolicy,
        *,
        tracebacks: bool,
        envelope: str = "",
        alone: bool = False,
        most_answer_bytes: int = 0,
    ) -> None:
        self._name = context.model_name
        self._envelope = envelope
        self._tracebacks = tracebacks
        self._most_answer_bytes = most_answer_bytes
        self.directory = str(context.system_properties["model_dir"])
        self._path = self._package_path(context.manifest)
        if not policy.keys:  # a signature does not cover what pip installed next to the archive
            make_importable(self.directory, context.manifest)
        package = open_package(self._path)
        _users[self._path] += 1
        try:
            self._manifest = policy.check(package)
            policy.test(package, self._manifest)
            where = self._manifest["entry"]
            load = package.make if alone else package.load_pickle
            entry = load(where["package"], where["resource"])
            self._answer = self._answerer(entry, context, package)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the package if this was its last user; this interpreter opens it again when it is needed."""
        _users[self._path] -= 1
        if not _users[self._path]:
            del _users[self._path]
            close_package(self._path)

    def handle(self, data: Sequence[dict[str, Any]], context: Any) -> list[Any]:
        """Answer a batch.

        Args:
            data: the requests' fields, one dict for each request.
            context: TorchServe's context for the batch.

        Returns:
            One answer for each request.

        Raises:
            PredictionException: the model raised; the text names the model and its exception.
        """
        try:
            return self._answer(data, context)
        except PredictionException:
            raise
        except Exception as error:
            text = f"Model {self._name!r} raised {describe(error)}"
            if self._tracebacks:
                text += f"\n{traceback_text(error)}"
            raise PredictionException(text, predict_failure_code(error)) from error

    def _describe(self) -> Any:
        """What GET /models/NAME?customized=true shows of a model without a handler of its own.

        The result of its method ``describe`` if it has one; else what its manifest says of its origin.
        """
        if callable(getattr(self.entry, "describe", None)):
            return sendable(self.entry.describe())
        return {name: self._manifest[name] for name in ("entry", "made_with", "externs")}

    def _package_path(self, mar_manifest: dict[str, Any]) -> str:
        name = (mar_manifest.get("model") or {}).get("serializedFile")
        if not name:
            raise ArchiveError(
                f"{self.directory}: the archive's manifest names no serializedFile; make it with "
                "torch-model-archiver --serialized-file MODEL.ptpkg"
            )
        path = os.path.join(self.directory, name)
        if not os.path.isfile(path):
            raise ArchiveError(f"{path} is missing: the archive's manifest names it as serializedFile")
        return path

    def _proven_request(self, package: HermeticPackage) -> Arguments | None:
        """The call for which the archive's proof holds; None if there is no proof."""
        request = self._manifest["request"]
        if request is None or self._manifest["serving"]["parts"] is None:
            return None
        body = package.load_binary(request["package"], request["resource"])
        try:
            return call_of(Form(request["content_type"], body))
        except (InputError, ValueError) as error:
            raise ArchiveError(f"{self._path}: its request cannot be read: {error}. Pack it again") from None

    def _answerer(self, entry: Any, context: Any, package: HermeticPackage) -> Callable[..., list[Any]]:
        self.takes_envelope = False
        self.entry = entry
        if is_handler(entry):
            return handler_of(entry, context)
        if not callable(entry):
            raise ArchiveError(
                f"{self._path}: its entry is a {type(entry).__qualname__}, which cannot "
                "be called and has no handle()"
            )
        if (gpu := context.system_properties.get("gpu_id")) is not None:
            logger.warning(
                "interpool: TorchServe gave this worker GPU %s, which the model, without a handler, leaves "
                "unused: it runs where its weights are. A handler can take it there; `deviceType: cpu` in "
                "its configuration file keeps GPUs for others",
                gpu,
            )
        self.takes_envelope = self._envelope in ENVELOPES
        return DefaultHandler(
            entry,
            self._name,
            tracebacks=self._tracebacks,
            envelope=self._envelope if self.takes_envelope else "",
            manifest=context.manifest.get("model"),
            serving=self._manifest["serving"],
            inputs=self._manifest["inputs"],
            proven=self._proven_request(package),
            described=self._describe,
            most_bytes=self._most_answer_bytes,
        ).handle
