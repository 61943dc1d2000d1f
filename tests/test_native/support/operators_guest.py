"""torch's own operator samples (OpInfo), answered in one interpreter and asked again in another."""

from __future__ import annotations

import functools
import itertools
import sys
import types
import unittest
import warnings
from typing import Any

import torch
from namespaces import late


def record(path: str, samples: int) -> int:
    """Writes samples of each operator with their answers; returns how many operators."""
    stub = types.ModuleType("expecttest")  # which torch's tests want, and its samples do not
    stub.TestCase = unittest.TestCase  # type: ignore[attr-defined]
    sys.modules.setdefault("expecttest", stub)
    from torch.testing._internal.common_methods_invocations import op_db

    warnings.simplefilter("ignore")
    found = {}
    for op in op_db:
        cases = []
        if _resolve(op.name) is None or torch.float32 not in op.dtypes or "empty" in op.name:
            continue
        torch.manual_seed(0)
        try:
            for sample in itertools.islice(op.sample_inputs("cpu", torch.float32), samples):
                arguments = (sample.input, *sample.args), sample.kwargs
                cases.append((*arguments, _answer(op.name, *arguments)))
            torch.save(cases, path + ".try")
        except Exception:  # noqa: BLE001 (not all can be written, or have a function of their name)
            continue
        found[op.name, op.variant_test_name] = cases
    torch.save(found, path)
    return len(found)


def answer(path: str) -> int:
    """Answers all samples again; returns how many modules of torch's are late then."""
    warnings.simplefilter("ignore")
    for (name, variant), cases in torch.load(path, weights_only=False).items():
        for args, kwargs, expected in cases:
            try:
                found = _answer(name, args, kwargs)
            except Exception as error:  # noqa: BLE001
                found = error
            _answers.append((f"{name} {variant}", found, expected))
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


def _answer(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    torch.manual_seed(0)
    function = _resolve(name)
    assert function is not None
    answer = function(*args, **kwargs)
    # Answers as plain tensors: named tuples of theirs are compared alike.
    return list(answer) if isinstance(answer, tuple | list) else answer


def _resolve(name: str) -> Any:
    try:
        function = functools.reduce(getattr, name.split("."), torch)
    except AttributeError:
        return None
    return function if callable(function) else None
