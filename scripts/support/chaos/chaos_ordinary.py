"""The handler file of an ordinary archive whose model leaves traces."""

from __future__ import annotations

from typing import Any

from chaos_models import Tracing

_model = Tracing()


def handle(data: list[dict[str, Any]] | None, context: Any) -> list[Any] | None:
    """TorchServe's entry point; without data to load the model."""
    if data is None:
        _model.initialize(context)
        return None
    return _model.handle(data, context)
