"""Extracted archives as TorchServe leaves them, and what the host says of a worker that serves one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from interpool.handler.signature_policy import SignaturePolicy
from interpool.handler.torchserve import installed_ts
from interpool.handler.worker_token import WorkerToken

METRICS = str(installed_ts() / "configs" / "metrics.yaml")


def extracted(directory: Path, **model: Any) -> Path:
    """An extracted archive with a manifest and nothing else; ``model`` adds to the manifest's part of it."""
    (directory / "MAR-INF").mkdir(parents=True, exist_ok=True)
    manifest = {"model": {"modelName": "m", **model}}
    (directory / "MAR-INF" / "MANIFEST.json").write_text(json.dumps(manifest, indent=2))
    return directory


def token(log: int = -1, **more: Any) -> WorkerToken:
    """A worker that prints to one descriptor; ``more`` replaces what the host says of it."""
    usual = {"stdout": log, "stderr": log, "metrics_config": METRICS, "refusal": "", "tracebacks": False}
    return WorkerToken(**{**usual, "failed_load": -1, "policy": SignaturePolicy(), **more})
