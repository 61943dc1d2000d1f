"""torch's own samples of modules (ModuleInfo): answers and gradients, asked for in two interpreters."""

from __future__ import annotations

import itertools
import sys
import types
import unittest
import warnings
from typing import Any

import torch
from namespaces import late


def record(path: str, samples: int) -> int:
    """Writes samples of each module with what they give; returns how many modules."""
    stub = types.ModuleType("expecttest")  # which torch's tests want, and its samples do not
    stub.TestCase = unittest.TestCase  # type: ignore[attr-defined]
    sys.modules.setdefault("expecttest", stub)
    from torch.testing._internal.common_modules import module_db

    warnings.simplefilter("ignore")
    found = {}
    for info in module_db:
        cases = []
        try:
            torch.manual_seed(0)
            inputs = info.module_inputs_func(
                info, device="cpu", dtype=torch.float32, requires_grad=False, training=True
            )
            for each in itertools.islice((one for one in inputs if one.forward_input), samples):
                made, given = each.constructor_input, each.forward_input
                case = (made.args, made.kwargs, given.args, given.kwargs)
                cases.append((*case, _answer(info.module_cls, *case)))
            torch.save(cases, path + ".try")
        except Exception:  # noqa: BLE001 (not all can be written down)
            continue
        if cases:
            found[info.module_cls.__module__, info.module_cls.__name__] = cases
    torch.save(found, path)
    return len(found)


def answer(path: str) -> int:
    """Asks all samples again; returns how many modules of torch's are late then."""
    warnings.simplefilter("ignore")
    for (module, name), cases in torch.load(path, weights_only=False).items():
        for *case, expected in cases:
            try:
                found: Any = _answer(getattr(sys.modules[module], name), *case)
            except Exception as error:  # noqa: BLE001
                found = error
            _answers.append((f"{module}.{name}", found, expected))
    return late()


def compare() -> list[str]:
    """What of these answers is not as it was. Comparing them imports what is late."""
    wrong = []
    for name, found, expected in _answers:
        try:
            torch.testing.assert_close(found, expected, equal_nan=True)
        except Exception as error:  # noqa: BLE001
            wrong.append(f"{name}: {found if isinstance(found, Exception) else error}")
    return wrong


_answers: list[tuple[str, Any, Any]] = []


def _answer(
    kind: Any, made: tuple[Any, ...], options: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[torch.Tensor]:
    """The tensors of the answer, and the gradients of the module's parameters."""
    torch.manual_seed(0)
    module = kind(*made, **options)
    answer = list(_tensors(module(*args, **kwargs)))
    total = sum(each.sum() for each in answer if each.requires_grad)
    if isinstance(total, torch.Tensor):
        total.backward()  # type: ignore[no-untyped-call]
    gradients = [each.grad for each in module.parameters() if each.grad is not None]
    return [each.detach() for each in answer] + gradients


def _tensors(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for each in value:
            yield from _tensors(each)
