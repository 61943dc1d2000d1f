"""torch's own samples of modules (ModuleInfo): answers and gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from own_samples import Asking, Entries, Samples, gradients, tensors


def modules() -> Entries:
    """Names of modules, with samples: a class, the arguments it is made with, those it is called with."""
    from torch.testing._internal.common_modules import module_db

    for info in module_db:
        yield f"{info.module_cls.__module__}.{info.module_cls.__name__}", _samples(info)


def _samples(info: Any) -> Iterator[Asking]:
    inputs = info.module_inputs_func(
        info, device="cpu", dtype=torch.float32, requires_grad=False, training=True
    )
    for each in inputs:
        if each.forward_input:
            made, given = each.constructor_input, each.forward_input
            yield info.module_cls, made.args, made.kwargs, given.args, given.kwargs


def made_modules() -> Entries:
    """The same, made."""
    for name, samples in modules():
        yield name, ((kind(*made, **options), *given) for kind, made, options, *given in samples)


def ask_module(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[torch.Tensor | None]:
    """The tensors of its answer, and the gradients of its parameters."""
    torch.manual_seed(0)
    answer = list(tensors(module(*args, **kwargs)))
    return answer + gradients(answer, list(module.parameters()))


def _answer(
    kind: Any, made: tuple[Any, ...], options: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[torch.Tensor | None]:
    return ask_module(kind(*made, **options), args, kwargs)


answers = Samples(modules, _answer)
