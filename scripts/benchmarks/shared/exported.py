"""What TorchScript or torch.export make of a model as it is, without a change to its code.

Run as a program, with ROOT and SPEC: prints ``how``, ``part`` and ``reasons`` as JSON.
TorchScript's compiler is tried first, then its tracer, then torch.export. What they make must
answer as the model does, on the example inputs and on others like them, as both tracers write down what
happened once. Of a handler it is the network, called with what the handler gives it; the rest of
it stays Python.
"""

from __future__ import annotations

import copy
import importlib
import json
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from stock_answer import call, data, seed
from torch import nn

from interpool.archiver_ext.verify.self_test import differences

Inputs = tuple[tuple[Any, ...], dict[str, Any]]
RTOL, ATOL = 1e-4, 1e-5


@dataclass
class Exported:
    """What became of a model.

    Attributes:
        entry: answers as the model does; None if nothing could be made of it.
        how: "script", "trace" or "export"; "" if none held.
        part: what it is of, if not of all that the model does with any inputs.
        reasons: why the ways before that one did not hold, in their own words.
    """

    entry: Any = None
    how: str = ""
    part: str = ""
    reasons: dict[str, str] = field(default_factory=dict)


def export(entry: Any, inputs: Inputs, others: Inputs) -> Exported:
    """Try all ways, in turn; ``inputs`` and ``others`` are two of the kind that the entry takes."""
    found = Exported(part="" if isinstance(entry, nn.Module) else "its network")
    with warnings.catch_warnings(), torch.inference_mode(False), torch.no_grad():
        warnings.simplefilter("ignore")
        for how, make in (("script", _script), ("trace", _trace), ("export", _export)):
            try:
                made = _with_network(entry, make, inputs)
                for each in (inputs, others):
                    if wrong := differences(_answer(entry, each), _answer(made, each), RTOL, ATOL):
                        raise ValueError(f"answers otherwise: {wrong[0]}")
            except Exception as error:  # noqa: BLE001 - whatever a compiler raises
                found.reasons[how] = _words(error)
                continue
            found.entry, found.how = made, how
            if how == "export" and not found.part and any(map(_fixed, (*inputs[0], *inputs[1].values()))):
                found.part = "for these numbers and words only"
            break
    return found


def inputs_of(factory: Any, number: int) -> Inputs:
    """The factory's example inputs, with those random numbers."""
    torch.manual_seed(number)
    given = factory.example_inputs()
    if isinstance(given, dict):
        return (), given
    return given if isinstance(given, tuple) else (given,), {}


def _fixed(value: Any) -> bool:
    """Whether torch.export takes part of an input for a constant."""
    if isinstance(value, (list, tuple)):
        return any(map(_fixed, value))
    if isinstance(value, dict):
        return any(map(_fixed, value.values()))
    return not isinstance(value, torch.Tensor)


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


def _answer(entry: Any, inputs: Inputs) -> Any:
    args, kwargs = copy.deepcopy(inputs)
    entry = copy.deepcopy(entry) if isinstance(entry, nn.Module) else entry  # it may change as it answers
    seed()
    return data(call(entry, args, kwargs))


def _words(error: Exception) -> str:
    """What kind of error it is, and its first line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0].strip() if lines else ''}"


def main() -> None:
    root, spec = sys.argv[1:]
    sys.path.insert(0, root)
    logging.disable()
    name, _, build = spec.partition(":")
    factory = importlib.import_module(name)
    found = export(getattr(factory, build)(), inputs_of(factory, 0), inputs_of(factory, 1))
    print(json.dumps({"how": found.how, "part": found.part, "reasons": found.reasons}))


if __name__ == "__main__":
    main()
