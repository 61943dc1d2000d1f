"""Loads a hermetic model in a private interpreter; there is no other way.

The pool's service makes a ``LoadRequest`` of TorchServe's load command. A stock worker's shard makes one of
what that worker got. The result of either is a model and TorchServe's context for it.
"""

from __future__ import annotations

import json
import os
import uuid

import ts
from ts.context import Context
from ts.utils.util import get_yaml_config

from interpool.handler.backend.load_request import LoadRequest
from interpool.handler.backend.metrics import ModelMetrics
from interpool.handler.backend.packed_model import PackedModel
from interpool.handler.signature_policy import SignaturePolicy
from interpool.handler.torchserve import MANIFEST
from interpool.native.archive.manifest_names import require_inside


def load_model(request: LoadRequest, policy: SignaturePolicy) -> tuple[PackedModel, Context]:
    """Load a model into this interpreter.

    Args:
        request: which model, and how it is served.
        policy: what its package must prove before anything in it runs.

    Returns:
        The model, and TorchServe's context for its calls, as TorchServe's own loader makes it.

    Raises:
        ArchiveError: the package is missing, damaged, or refused (see SignaturePolicy).
        Exception: what the package's own code raises while it is loaded.
    """
    metrics = ModelMetrics.of_model(request.model_name, request.metrics_config)
    # For metrics that a handler emits while it initializes, as in TorchServe's loader.
    metrics.set_request_ids(str(uuid.uuid4()))
    path = os.path.join(request.model_dir, MANIFEST)
    with open(path, encoding="utf-8") as file:
        manifest = json.load(file)
    model_section = manifest.get("model") or {}
    require_inside(model_section, path, request.model_dir)
    config_file = model_section.get("configFile")
    context = Context(
        request.model_name,
        request.model_dir,
        manifest,
        request.batch_size,
        request.gpu,
        ts.__version__,
        request.limit_max_image_pixels,
        metrics,
        get_yaml_config(os.path.join(request.model_dir, config_file)) if config_file else {},
    )
    model = PackedModel(
        context,
        policy,
        tracebacks=request.tracebacks,
        envelope=request.envelope,
        alone=request.alone,
        most_answer_bytes=request.most_answer_bytes,
    )
    return model, context
