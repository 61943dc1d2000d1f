"""The self-test in an archive: example inputs, and what the model answered them.

One way of calling a model and of comparing answers, for who packs, verifies and serves.
"""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch

from interpool.archiver_ext.verify.handler_context import handler_context
from interpool.native.archive.format import SERVED_PLAINLY, Serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from interpool.native.archive.format import EntryKind, SelfTest

SEED = 0


@dataclass(frozen=True)
class Sample:
    """Example inputs.

    Attributes:
        args: positional arguments of the entry. Of a handler: one list, the batch that
            TorchServe would give to ``handle``, such as ``[{"body": ...}]``.
        kwargs: named arguments.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @classmethod
    def of(cls, given: object) -> Sample:
        """From what a user's function of example inputs returned.

        A tuple holds positional arguments, a dict with string keys named ones; anything
        else is the one argument.
        """
        if isinstance(given, tuple):
            return cls(given, {})
        if isinstance(given, dict) and given and all(isinstance(key, str) for key in given):
            return cls((), dict(given))
        return cls((given,), {})

    def describe(self) -> dict[str, Any]:
        """JSON-able signature: shapes and dtypes of tensors, types of the rest."""
        return {
            "args": [_describe(value) for value in self.args],
            "kwargs": {name: _describe(value) for name, value in self.kwargs.items()},
        }


def answer(
    entry: Any,
    kind: EntryKind,
    sample: Sample,
    seed: int = SEED,
    opaque: list[str] | None = None,
    serving: Serving = SERVED_PLAINLY,
) -> Any:
    """What the entry answers, as plain data.

    Seeds torch, numpy and random first. A module runs in evaluation and inference mode, or as
    ``serving`` says; a handler is initialized and gets one batch, both with TorchServe's context, in
    which the model's directory is an empty one. What it does to its inputs, it does to copies.

    Args:
        entry: the archive's entry, not initialized yet if it is a handler.
        kind: what it is.
        sample: its inputs.
        seed: for random numbers.
        opaque: see plain.
        serving: how a module is served.

    Returns:
        None, numbers, strings, bytes, detached tensors, and lists and dicts of them.
    """
    sample = _copied(sample)
    if kind == "handler":
        return _handled(entry, sample, seed, opaque)
    seed_all(seed)
    if kind == "module":
        if not serving["train_mode"]:
            entry.eval()
        with torch.enable_grad() if serving["grad"] else torch.inference_mode():
            return plain(entry(*sample.args, **sample.kwargs), opaque)
    return plain(entry(*sample.args, **sample.kwargs), opaque)


def _copied(sample: Sample) -> Sample:
    """The sample again, or itself where something in it cannot be copied: a lock, a tensor with a history."""
    try:
        # In one call, so that what two arguments share stays shared.
        args, kwargs = copy.deepcopy((sample.args, sample.kwargs))
    except Exception:  # noqa: BLE001 -- whatever copying somebody's object raises
        return sample
    return Sample(args, kwargs)


def _handled(entry: Any, sample: Sample, seed: int, opaque: list[str] | None) -> Any:
    (rows,) = sample.args
    with TemporaryDirectory(prefix="interpool-model-") as model_dir:
        context = handler_context(rows, Path(model_dir))
        handle = getattr(entry, "handle", None)  # before initialize, as a server takes it
        if callable(getattr(entry, "initialize", None)):
            entry.initialize(context)
        seed_all(seed)
        if callable(handle):
            return plain(handle(rows, context), opaque)
        return plain(entry.postprocess(entry.inference(entry.preprocess(rows))), opaque)


def replay(entry: Any, kind: EntryKind, held: Any, test: SelfTest, serving: Serving) -> Any:
    """What the entry answers to the inputs in an archive's self-test.

    Args:
        entry: as in answer.
        kind: what it is.
        held: the self-test's unpickled content.
        test: the manifest's word on it.
        serving: its word on how a module is served.

    Raises:
        Exception: what the entry raises.
    """
    sample = Sample(tuple(held["args"]), dict(held["kwargs"]))
    return answer(entry, kind, sample, test["seed"], serving=serving)


def plain(value: Any, opaque: list[str] | None = None) -> Any:
    """An answer as data that needs no class of the model's to be read.

    Sets become sorted lists, arrays tensors or lists, objects of other classes their class's name.

    Args:
        value: what the entry gave.
        opaque: gets, in words, what is left of objects of other classes: the self-test compares their
            class only.
    """
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return value
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, Mapping):
        return {str(key): plain(part, opaque) for key, part in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name), opaque) for field in fields(value)}
    if isinstance(value, Sequence):
        return [plain(part, opaque) for part in value]
    if isinstance(value, Set):
        return sorted((plain(part, opaque) for part in value), key=repr)
    if hasattr(value, "__array__"):
        return _array(value.__array__(), opaque)
    words = f"an object of class {type(value).__qualname__}"
    if opaque is not None and words not in opaque:
        opaque.append(words)
    return words


def _array(array: Any, opaque: list[str] | None) -> Any:
    try:
        return torch.as_tensor(array)
    except (TypeError, ValueError):  # texts, dates, objects, another machine's byte order
        return plain(array.tolist(), opaque)


def differences(expected: Any, got: Any, rtol: float, atol: float) -> list[str]:
    """Where two plain answers differ by more than the tolerance, one line each; [] if nowhere.

    The tolerance is for floating-point and complex numbers; all else must be equal.
    """
    return list(_compare("answer", expected, got, rtol, atol))


def _compare(place: str, expected: Any, got: Any, rtol: float, atol: float) -> Iterator[str]:
    if isinstance(expected, torch.Tensor) and isinstance(got, torch.Tensor):
        if not (expected.is_floating_point() or expected.is_complex()):
            rtol = atol = 0.0
        try:
            torch.testing.assert_close(got, expected, rtol=rtol, atol=atol, equal_nan=True)
        except AssertionError as error:
            yield f"{place}: {' '.join(str(error).split())}"
    elif isinstance(expected, dict) and isinstance(got, dict) and expected.keys() == got.keys():
        for key in expected:
            yield from _compare(f"{place}[{key!r}]", expected[key], got[key], rtol, atol)
    elif isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got):
        for index, (left, right) in enumerate(zip(expected, got, strict=True)):
            yield from _compare(f"{place}[{index}]", left, right, rtol, atol)
    elif isinstance(expected, (float, complex)) and isinstance(got, (float, complex)):
        same = expected == got or (expected != expected and got != got)
        close = same or (
            not math.isinf(abs(expected))  # all numbers are within a part of that
            and abs(expected - got) <= atol + rtol * abs(expected)
        )
        if not close:
            yield f"{place}: {got!r}, not {expected!r}"
    elif type(expected) is not type(got) or expected != got:
        yield f"{place}: {_short(got)}, not {_short(expected)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


def _describe(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return {"tensor": {"dtype": str(value.dtype).removeprefix("torch."), "shape": list(value.shape)}}
    if isinstance(value, Mapping):
        return {"dict": {str(key): _describe(part) for key, part in value.items()}}
    if isinstance(value, (list, tuple)):  # and named tuples, and torch.Size
        return {"list" if isinstance(value, list) else "tuple": [_describe(part) for part in value]}
    return {"type": type(value).__qualname__}


def seed_all(seed: int) -> None:
    """Seed what models draw random numbers from."""
    torch.manual_seed(seed)
    random.seed(seed)
    try:
        import numpy as np
    except ModuleNotFoundError:
        return
    np.random.seed(seed)
