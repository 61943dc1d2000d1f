"""torch's own ``autograd.Function``s: gradients, tangents, and the same mapped over a dimension."""

from __future__ import annotations

from typing import Any

import torch
from own_samples import Entries, Samples, gradients, tensors


def _samples() -> Entries:
    from torch.testing._internal.autograd_function_db import autograd_function_db

    for op in autograd_function_db:
        samples = op.sample_inputs("cpu", torch.float32, requires_grad=True)
        yield op.name, ((op.name, (each.input, *each.args), each.kwargs) for each in samples)


def _ask(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    from torch.testing._internal.autograd_function_db import autograd_function_db

    (op,) = [each for each in autograd_function_db if each.name == name]
    answer = op.op(*args, **kwargs)
    found = [*tensors(answer), *gradients(answer, [args, kwargs], twice=True)]
    first, *others = args

    def function(x: torch.Tensor) -> Any:
        return op.op(x, *others, **kwargs)

    if op.supports_forward_ad:
        found += tensors(torch.func.jvp(function, (first.detach(),), (torch.rand_like(first),)))
    if "NotComposable" not in name:
        batch = torch.stack([first.detach(), first.detach() + 1])
        found += tensors(torch.func.vmap(function)(batch))
    return found


differentiated = Samples(_samples, _ask, needs_all=True)
