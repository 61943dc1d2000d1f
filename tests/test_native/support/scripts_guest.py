"""TorchScript: torch's own samples, scripted and traced; functions, operators and modules, and gradients."""

from __future__ import annotations

import io
import math
import typing
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
from modules_guest import ask_module, made_modules
from operators_guest import function_of, operators
from own_samples import Asking, Entries, Samples, gradients, tensors

WAYS = ("script", "trace")


def _functions() -> Entries:
    from torch.testing._internal import jit_metaprogramming_utils as utils

    for number, (name, size, args, *_) in enumerate(utils.get_nn_functional_tests()):
        for way in WAYS:
            yield f"{way} {name} {number}", _function_of_test(way, name, size, args)


def _function_of_test(way: str, name: str, size: Any, args: Any) -> Iterator[Asking]:
    from torch.testing._internal import jit_metaprogramming_utils as utils

    given = utils.create_input((size,))[0] + utils.create_input(args)[0]
    yield way, *_source(name, "nn_functional", given, {})


def _operators() -> Entries:
    for way in WAYS:
        for name, op, samples in operators(requires_grad=True):
            kind = "functional" if function_of(torch, op.name) else "method"
            askings = (_source(op.name, kind, (each.input, *each.args), each.kwargs) for each in samples)
            yield f"{way} {name}", ((way, *asking) for asking in askings)


def _source(name: str, kind: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, list[Any]]:
    """A function of tensors that torch's tests of TorchScript write, and the tensors."""
    from torch.testing._internal import jit_metaprogramming_utils as utils

    formals, given, actuals = utils.get_script_args(args)
    call = utils.get_call(name, kind, actuals, kwargs)
    return utils.script_template.format(", ".join(formals), call), given


def _ask_function(way: str, source: str, given: list[Any]) -> list[Any]:
    function = _eager(source)
    if way == "script":
        function = torch.jit.CompilationUnit(source).the_method
    elif way == "trace":
        function = torch.jit.trace(function, tuple(_copies(given)), check_trace=False)
    found: list[Any] = []
    for _ in range(2 if way else 1):  # the second time by what was seen the first time
        torch.manual_seed(0)
        answer = list(tensors(function(*_copies(given))))
        assert answer
        found = answer + gradients(answer, given)
    return found


def _copies(given: list[Any]) -> list[Any]:
    """Some functions work in place."""
    return [[one.clone() for one in each] if isinstance(each, list) else each.clone() for each in given]


def _eager(source: str) -> Any:
    names = {**vars(typing), "__name__": "sample", "torch": torch, "math": math, "inf": math.inf}
    exec(source, names)
    return names["the_method"]


def _modules() -> Entries:
    for way in WAYS:
        for name, samples in made_modules():
            yield f"{way} {name}", ((way, *sample) for sample in samples)
        for name, samples in _modules_of_tests():
            yield f"{way} {name}", ((way, *sample) for sample in samples)


def _modules_of_tests() -> Entries:
    from torch.testing._internal import jit_metaprogramming_utils as utils

    for number, test in enumerate(getattr(utils, "get_all_nn_module_tests", list)()):
        yield f"{utils.get_nn_mod_test_name(**test)} {number}", _module_of_test(test)


def _module_of_test(test: dict[str, Any]) -> Iterator[Asking]:
    from torch.testing._internal import jit_metaprogramming_utils as utils

    with mock.patch.object(utils, "create_script_module") as make:
        utils.try_get_nn_module_compiled_mod_and_inputs(**test)
    if make.called:
        _, kind, made, *given = make.call_args.args
        module = kind(*made)
        doubles = any(each.dtype == torch.float64 for each in tensors(given))
        yield module.double() if doubles else module, tuple(given), {}


def _ask_module(way: str, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    if way == "script":
        module = _saved(torch.jit.script(module))
    elif way == "trace":
        module = _saved(torch.jit.trace(module, args, example_kwarg_inputs=kwargs or None, check_trace=False))
    return ask_module(module, args, kwargs)


def _saved(module: Any) -> Any:
    file = io.BytesIO()
    torch.jit.save(module, file)
    file.seek(0)
    return torch.jit.load(file)


def _as_eager(ask: Any) -> Any:
    return lambda _, *asking: ask("", *asking)


functions = Samples(_functions, _ask_function, reference=_as_eager(_ask_function))
compiled_operators = Samples(_operators, _ask_function, reference=_as_eager(_ask_function))
compiled_modules = Samples(_modules, _ask_module, reference=_as_eager(_ask_module))
