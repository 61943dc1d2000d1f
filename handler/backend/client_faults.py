"""Finds how a request that made the model raise differs from the archive's example inputs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from interpool.handler.backend.inputs import Arguments

_FLOATS = "send 1.0 in place of 1, or say the type beside the inputs"


def faults(function: Callable[..., Any], call: Arguments, inputs: Any) -> list[str]:
    """Describe a request's differences, with what to send instead; empty if the model accepts such requests.

    Args:
        function: what was called for the request.
        call: the arguments of the call.
        inputs: the manifest's description of the example inputs; None if there is none.
    """
    if said := _does_not_fit(function, call):
        return [said]
    if not isinstance(inputs, Mapping):
        return []
    args, kwargs = list(inputs.get("args") or []), dict(inputs.get("kwargs") or {})
    given = list(call.positional)
    if len(given) <= len(args) and kwargs.keys() >= call.named.keys():
        pairs = [
            (f"argument {index + 1}", *pair) for index, pair in enumerate(zip(args, given, strict=False))
        ]
        pairs += [(f"`{name}`", kwargs[name], value) for name, value in call.named.items()]
    else:
        pairs = _by_name(function, args, kwargs, call)
    return [said for name, described, value in pairs if (said := _difference(name, described, value))]


def _does_not_fit(function: Callable[..., Any], call: Arguments) -> str:
    signature = _signature(function)
    if signature is None:
        return ""
    try:
        signature.bind(*call.positional, **call.named)
    except TypeError as error:
        return f"{error}: the model takes {_shown(signature)}"
    return ""


def _shown(signature: inspect.Signature) -> str:
    try:
        return str(signature)
    except Exception:  # noqa: BLE001 -- a foreign __repr__ of a default
        return f"({', '.join(signature.parameters)})"


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    called = function.forward if isinstance(function, torch.nn.Module) else function
    try:
        return inspect.signature(called)
    except (TypeError, ValueError):  # a function in C, or one that hides its arguments
        return None


def _by_name(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], call: Arguments
) -> list[tuple[str, Any, Any]]:
    """Arguments and their descriptions, if one came by place and the other by name."""
    signature = _signature(function)
    if signature is None:
        return []
    try:
        described = signature.bind(*args, **kwargs).arguments
        given = signature.bind(*call.positional, **call.named).arguments
    except TypeError:
        return []
    return [(f"`{name}`", described[name], value) for name, value in given.items() if name in described]


def _difference(name: str, described: Any, value: Any) -> str:
    if not isinstance(described, Mapping):
        return ""
    tensor = described.get("tensor")
    if not isinstance(tensor, Mapping):
        kind = described.get("type")
        if kind in ("str", "bytes", "int", "float", "bool") and type(value).__name__ != kind:
            return f"{name} is a {_kind(value)}, and the model was packed with a {kind}"
        return ""
    wanted = f"{tensor['dtype']} of shape {tensor['shape']}"
    if not isinstance(value, torch.Tensor):
        return (
            f"{name} is a {_kind(value)}, and the model was packed with a tensor, {wanted}: "
            "send a list of numbers"
        )
    found = str(value.dtype).removeprefix("torch.")
    if found != tensor["dtype"]:
        hint = f': {_FLOATS}, as "dtype": "{tensor["dtype"]}"' if not value.is_floating_point() else ""
        return f"{name} holds {found}, and the model was packed with {wanted}{hint}"
    shape, own = list(tensor["shape"]), list(value.shape)
    # A request may be one sample of the example inputs, or have more or fewer of them.
    if own not in (shape, shape[1:]) and (len(own) != len(shape) or own[1:] != shape[1:]):
        return f"{name} has the shape {own}, and the model was packed with {wanted}"
    return ""


def _kind(value: Any) -> str:
    return "tensor" if isinstance(value, torch.Tensor) else type(value).__name__
