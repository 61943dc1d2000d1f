"""Creates TorchServe's context for a handler, outside of TorchServe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def handler_context(
    rows: Sequence[dict[str, Any]], model_dir: Path, headers: Sequence[dict[str, Any]] = ()
) -> Any:
    """Return a real ``ts.context.Context`` for a handler's batch.

    Args:
        rows: the batch.
        model_dir: the directory in which the handler looks for the .mar's extra files.
        headers: of each request; default: none.
    """
    import ts
    from ts.context import Context, RequestProcessor
    from ts.metrics.metrics_store import MetricsStore

    ids = {index: f"self-test-{index}" for index in range(len(rows))}
    context = Context(
        model_name="model",
        model_dir=str(model_dir),
        manifest={"model": {"modelName": "model"}},
        batch_size=len(rows),
        gpu=None,
        mms_version=ts.__version__,
        metrics=MetricsStore(ids, "model"),
        model_yaml_config={},
    )
    context.request_ids = ids
    context.request_processor = [RequestProcessor(fields) for fields in headers or [{} for _ in rows]]
    return context
