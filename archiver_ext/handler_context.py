"""The context that TorchServe gives to a handler, outside of TorchServe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from interpool.archiver_ext.self_test import Sample
    from interpool.native.archive_format import EntryKind


def handler_context(kind: EntryKind, sample: Sample, model_dir: Path) -> Any:
    """A real ``ts.context.Context`` for a handler's batch; None for an entry of another kind.

    Args:
        kind: of the entry.
        sample: its example inputs; of a handler: one batch.
        model_dir: where the handler looks for the .mar's extra files.
    """
    if kind != "handler":
        return None
    from ts.context import Context, RequestProcessor
    from ts.metrics.metrics_store import MetricsStore

    (rows,) = sample.args
    ids = {index: f"self-test-{index}" for index in range(len(rows))}
    context = Context(
        model_name="model",
        model_dir=str(model_dir),
        manifest={"model": {"modelName": "model"}},
        batch_size=len(rows),
        gpu=None,
        mms_version="0.12.0",
        metrics=MetricsStore(ids, "model"),
        model_yaml_config={},
    )
    context.request_ids = ids
    context.request_processor = [RequestProcessor({}) for _ in rows]
    return context
