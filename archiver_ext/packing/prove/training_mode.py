"""Finds layers in training mode, which would answer differently in a server's evaluation mode."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Iterator

_SHOWN = 5
_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
_INSTANCE_NORMS = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)


def training_layers(model: nn.Module) -> list[str]:
    """Return layers in training mode whose forward depends on the mode, as ``name (Class)``."""
    return [f"{name or 'the model itself'} ({_class(layer)})" for name, layer in _asking(model)]


def shown(layers: list[str]) -> str:
    """Format the first few layers."""
    more = len(layers) - _SHOWN
    return ", ".join(layers[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _asking(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    for name, layer in model.named_modules():
        # What torch.jit.freeze made has no mode.
        if getattr(layer, "training", False) and not _without_effect(layer) and _asks(layer):
            yield name, layer


def _asks(layer: nn.Module) -> bool:
    if isinstance(layer, torch.jit.ScriptModule):  # its code is TorchScript
        return any(word in _class(layer) for word in ("Dropout", "BatchNorm"))
    code = getattr(getattr(type(layer), "forward", None), "__code__", None)
    return code is not None and "training" in code.co_names


def _without_effect(layer: nn.Module) -> bool:
    """Return whether the mode has no effect on one of torch's layers that read it."""
    if isinstance(layer, _INSTANCE_NORMS):
        return not layer.track_running_stats
    if isinstance(layer, _DROPOUTS):
        return layer.p == 0
    if isinstance(layer, (nn.RNNBase, nn.MultiheadAttention)):
        return layer.dropout == 0
    # Their parts are separate layers; in themselves, only a shortcut depends on the mode.
    return isinstance(layer, (nn.TransformerEncoderLayer, nn.TransformerEncoder))


def _class(layer: nn.Module) -> str:
    return str(getattr(layer, "original_name", type(layer).__name__))
