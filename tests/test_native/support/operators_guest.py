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


def compare(path: str) -> list[str]:
    """Answers all samples again; what is not as it was."""
    warnings.simplefilter("ignore")
    found = torch.load(path, weights_only=False)
    wrong = []
    for (name, variant), cases in found.items():
        for args, kwargs, expected in cases:
            try:
                torch.testing.assert_close(_answer(name, args, kwargs), expected, equal_nan=True)
            except Exception as error:  # noqa: BLE001
                wrong.append(f"{name} {variant}: {error}")
    return wrong


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
