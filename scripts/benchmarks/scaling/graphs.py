"""What TorchScript or torch.export make of a model as it is, without a change to its code.

TorchScript's compiler is tried first, then its tracer, then torch.export. What they make must answer as the
model does, on the example inputs and on others like them: both tracers write down what happened once. Of a
handler it is the network, called with what the handler gives it; the rest of it stays Python.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from stock_answer import call, data, seed
from torch import nn

from interpool.archiver_ext.verify.self_test import differences

Inputs = tuple[tuple[Any, ...], dict[str, Any]]
RTOL, ATOL = 1e-4, 1e-5


def export(entry: Any, inputs: Inputs, others: Inputs) -> tuple[Any, str]:
    """Try all ways, in turn; ``inputs`` and ``others`` are two of the kind that the entry takes.

    Returns:
        What answers as the model does, or None, and how it was made: "script", "trace", "export" or "".
    """
    with warnings.catch_warnings(), torch.inference_mode(False), torch.no_grad():
        warnings.simplefilter("ignore")
        for how, make in (("script", _script), ("trace", _trace), ("export", _export)):
            # If a compiler raises any exception, the next one is tried.
            with suppress(Exception):
                made = _with_network(entry, make, inputs)
                if all(_alike(entry, made, each) for each in (inputs, others)):
                    return made, how
    return None, ""


def inputs_of(factory: Any, number: int) -> Inputs:
    """The factory's example inputs, with those random numbers."""
    torch.manual_seed(number)
    given = factory.example_inputs()
    if isinstance(given, dict):
        return (), given
    return given if isinstance(given, tuple) else (given,), {}


def _script(network: nn.Module, _inputs: Inputs) -> Any:
    return torch.jit.script(network)


def _trace(network: nn.Module, inputs: Inputs) -> Any:
    args, kwargs = inputs
    if kwargs:
        return torch.jit.trace(network, example_kwarg_inputs=kwargs, check_trace=False, strict=False)
    return torch.jit.trace(network, args, check_trace=False, strict=False)


def _export(network: nn.Module, inputs: Inputs) -> Any:
    return torch.export.export(network, *inputs).module()


def _with_network(entry: Any, make: Callable[[nn.Module, Inputs], Any], inputs: Inputs) -> Any:
    """The entry, or a copy of the handler, with its network made into something else."""
    if isinstance(entry, nn.Module):
        return make(copy.deepcopy(entry), inputs)
    networks = {name: each for name, each in vars(entry).items() if isinstance(each, nn.Module)}
    if len(networks) != 1:
        raise ValueError(f"{type(entry).__name__} has {len(networks)} networks")
    ((name, network),) = networks.items()
    with _seen(network) as calls:
        call(entry, *inputs)
    made = copy.copy(entry)
    setattr(made, name, make(copy.deepcopy(network), calls[0]))
    return made


@contextmanager
def _seen(network: nn.Module) -> Iterator[list[Inputs]]:
    """What the network is called with meanwhile."""
    calls: list[Inputs] = []
    hook = network.register_forward_pre_hook(
        lambda _module, args, kwargs: calls.append((args, kwargs)), with_kwargs=True
    )
    try:
        yield calls
    finally:
        hook.remove()


def _alike(entry: Any, made: Any, inputs: Inputs) -> bool:
    return not differences(_answer(entry, inputs), _answer(made, inputs), RTOL, ATOL)


def _answer(entry: Any, inputs: Inputs) -> Any:
    args, kwargs = copy.deepcopy(inputs)
    entry = copy.deepcopy(entry) if isinstance(entry, nn.Module) else entry  # it may change as it answers
    seed()
    return data(call(entry, args, kwargs))
