"""torch.export: torch's own examples of it, and torch's own samples of modules, exported and run."""

from __future__ import annotations

import functools
import io
from typing import Any

import torch
from modules_guest import made_modules
from own_samples import Entries, Samples, tensors


@functools.cache
def _cases() -> dict[str, Any]:
    torch.manual_seed(0)  # their weights and inputs are made when they are imported
    from torch._export.db.case import SupportLevel
    from torch._export.db.examples import filter_examples_by_support_level

    return dict(filter_examples_by_support_level(SupportLevel.SUPPORTED))


def _examples() -> Entries:
    for name in _cases():
        for strict in (False, True):
            yield f"{name} {strict=}", iter([(name, strict)])


def _ask_example(name: str, strict: bool) -> list[Any]:
    case = _cases()[name]
    program = torch.export.export(
        case.model,
        case.example_args,
        case.example_kwargs,
        dynamic_shapes=case.dynamic_shapes,
        strict=strict,
    )
    inputs = [(case.example_args, case.example_kwargs)]
    if case.extra_args is not None:
        inputs.append((case.extra_args, {}))
    return _of_program(program, inputs)


def _ask_module(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    program = torch.export.export(module.eval(), args, kwargs)
    return _of_program(program, [(args, kwargs)])


def _of_program(program: Any, inputs: list[tuple[tuple[Any, ...], dict[str, Any]]]) -> list[Any]:
    """Its code and signature, and what it answers; and that of the same written and read."""
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    found: list[Any] = []
    for each in (program, torch.export.load(file)):
        found += [each.graph_module.code, str(each.graph_signature)]
        for args, kwargs in inputs:
            torch.manual_seed(0)
            found += tensors(each.module()(*args, **kwargs))
    return found


examples = Samples(_examples, _ask_example, needs_all=True)
exported_modules = Samples(made_modules, _ask_module, needs_all=True)
