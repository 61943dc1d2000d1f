"""Recognizes TorchServe's handlers, initializes them, and creates their context outside of TorchServe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

_STAGES = ("preprocess", "inference", "postprocess")


def is_handler(entry: object) -> bool:
    """Return whether an object answers batches itself: by ``handle``, or by all of TorchServe's stages."""
    has_stages = all(callable(getattr(entry, name, None)) for name in _STAGES)
    return has_stages or callable(getattr(entry, "handle", None))


def handler_of(entry: Any, context: Any) -> Callable[..., list[Any]]:
    """Initialize a handler, and return the function that answers batches.

    Args:
        entry: the packed object, a handler.
        context: TorchServe's context for the model.

    Raises:
        Exception: what ``initialize`` raises.
    """
    # Look it up before initialize, as in TorchServe: a handle that initialize sets is never called.
    handle = getattr(entry, "handle", None)
    if callable(getattr(entry, "initialize", None)):
        entry.initialize(context)
    return handle if callable(handle) else _pipeline(*(getattr(entry, name) for name in _STAGES))


def _pipeline(preprocess: Any, inference: Any, postprocess: Any) -> Callable[..., list[Any]]:
    def handle(data: Sequence[dict[str, Any]], _context: Any) -> list[Any]:
        answers: list[Any] = postprocess(inference(preprocess(data)))
        return answers

    return handle


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
