"""torch's own samples of operators (OpInfo): answers, gradients of first and second order, and tangents."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch
from own_samples import Asking, Entries, Samples, gradients, tensors
from torch.autograd import forward_ad


def operators(*, requires_grad: bool = False) -> Iterator[tuple[str, Any, Iterator[Any]]]:
    """Names, descriptions and samples of those that have a function of their name, or a method."""
    from torch.testing._internal.common_methods_invocations import op_db

    for op in op_db:
        if _function(op.name) is not None and torch.float32 in op.dtypes and "empty" not in op.name:
            differentiable = requires_grad and op.supports_autograd
            samples = op.sample_inputs("cpu", torch.float32, requires_grad=differentiable)
            yield f"{op.name} {op.variant_test_name}", op, samples


def _samples() -> Entries:
    for name, op, samples in operators():
        yield name, (_asking(op, sample) for sample in samples)


def _differentiable_samples() -> Entries:
    for name, op, samples in operators(requires_grad=True):
        if op.supports_autograd:
            yield name, ((*_asking(op, sample), op.supports_gradgrad) for sample in samples)


def _forward_samples() -> Entries:
    for name, op, samples in operators(requires_grad=True):
        if op.supports_forward_ad:
            yield name, (_asking(op, sample) for sample in samples)


def _asking(op: Any, sample: Any) -> Asking:
    return op.name, (sample.input, *sample.args), sample.kwargs


def _answer(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    function = _function(name)
    assert function is not None
    answer = function(*args, **kwargs)
    # Answers as plain tensors: named tuples of theirs are compared alike.
    return list(answer) if isinstance(answer, tuple | list) else [answer]


def _gradients(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], twice: bool) -> list[Any]:
    answer = _answer(name, args, kwargs)
    found = gradients(answer, [args, kwargs], twice=twice)
    assert found
    return answer + found


def _tangents(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    with forward_ad.dual_level():

        def dual(value: Any) -> Any:
            if isinstance(value, torch.Tensor) and value.requires_grad:
                value = value.detach()
                return forward_ad.make_dual(value, torch.rand_like(value))
            if isinstance(value, tuple | list):
                return type(value)(dual(each) for each in value)
            return {key: dual(each) for key, each in value.items()} if isinstance(value, dict) else value

        answer = _answer(name, dual(args), dual(kwargs))
        found = [forward_ad.unpack_dual(each).tangent for each in tensors(answer)]
        assert any(each is not None for each in found)
        return found


def _function(name: str) -> Any:
    return function_of(torch, name) or function_of(torch.Tensor, name)


def function_of(owner: Any, name: str) -> Any:
    """What has this name there, if it can be called."""
    try:
        function = functools.reduce(getattr, name.split("."), owner)
    except AttributeError:
        return None
    return function if callable(function) else None


answers = Samples(_samples, _answer)
first_and_second = Samples(_differentiable_samples, _gradients)
forward = Samples(_forward_samples, _tangents, needs_all=True)
