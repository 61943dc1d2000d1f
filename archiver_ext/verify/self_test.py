"""Calls a model with the self-test's example inputs and compares the answers.

Packing, verification and serving share this module.
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

from interpool.archiver_ext.verify.handlers import handler_context, handler_of
from interpool.native.archive.format import SERVED_PLAINLY, Serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from interpool.native.archive.format import EntryKind, SelfTest

SEED = 0


@dataclass(frozen=True)
class Sample:
    """Example inputs.

    Attributes:
        args: positional arguments of the entry. For a handler: one list, the batch that TorchServe passes to
            ``handle``, such as ``[{"body": ...}]``.
        kwargs: named arguments.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @classmethod
    def of(cls, given: object) -> Sample:
        """Convert the result of a user's function of example inputs.

        A tuple contains positional arguments, a dict with string keys named ones; any other object is the
        only argument.
        """
        if isinstance(given, tuple):
            return cls(given, {})
        if isinstance(given, dict) and given and all(isinstance(key, str) for key in given):
            return cls((), dict(given))
        return cls((given,), {})

    def describe(self) -> dict[str, Any]:
        """Return a signature for JSON: shapes and dtypes of tensors, types of other values."""
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
    """Call the entry and return its answer as plain data.

    Seeds torch, numpy and random first. A module runs in evaluation and inference mode, or as ``serving``
    says. A handler is initialized and gets one batch, both with TorchServe's context and an empty model
    directory. The entry gets copies of its inputs.

    Args:
        entry: the archive's entry, not initialized yet if it is a handler.
        kind: of the entry.
        sample: its inputs.
        seed: for random numbers.
        opaque: see plain.
        serving: how a module is served.

    Returns:
        None, numbers, strings, bytes, detached tensors, and lists and dicts of them.

    Raises:
        Exception: raised by the entry.
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
    """Copy the sample.

    Return it unchanged if a part cannot be copied, such as a lock or a non-leaf tensor.
    """
    try:
        # Copy in one call, so that arguments keep shared objects.
        args, kwargs = copy.deepcopy((sample.args, sample.kwargs))
    except Exception:  # noqa: BLE001 (copying may raise any exception)
        return sample
    return Sample(args, kwargs)


def _handled(entry: Any, sample: Sample, seed: int, opaque: list[str] | None) -> Any:
    (rows,) = sample.args
    with TemporaryDirectory(prefix="interpool-model-") as model_dir:
        context = handler_context(rows, Path(model_dir))
        handle = handler_of(entry, context)
        seed_all(seed)
        return plain(handle(rows, context), opaque)


def replay(entry: Any, kind: EntryKind, held: Any, test: SelfTest, serving: Serving) -> Any:
    """Call the entry with the inputs of an archive's self-test, and return its answer.

    Args:
        entry: as in answer.
        kind: of the entry.
        held: the self-test's unpickled content.
        test: the self-test in the manifest.
        serving: how a module is served, from the manifest.

    Raises:
        Exception: raised by the entry.
    """
    sample = Sample(tuple(held["args"]), dict(held["kwargs"]))
    return answer(entry, kind, sample, test["seed"], serving=serving)


def plain(value: Any, opaque: list[str] | None = None) -> Any:
    """Convert an answer to data that can be read without the model's classes.

    Sets become sorted lists, arrays tensors or lists, objects of other classes the name of their class.

    Args:
        value: the entry's answer.
        opaque: collects descriptions of objects of other classes, of which the self-test compares only the
            class.
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
    except (TypeError, ValueError):  # strings, dates, objects, another machine's byte order
        return plain(array.tolist(), opaque)


def differences(expected: Any, got: Any, rtol: float, atol: float) -> list[str]:
    """Return the differences between two plain answers beyond the tolerance, one line each.

    The tolerance applies to floating-point and complex numbers; other values must be equal.

    Args:
        expected: the expected answer.
        got: the present answer.
        rtol: relative tolerance.
        atol: absolute tolerance.
    """
    return list(_compare("answer", expected, got, rtol, atol))


def _compare(place: str, expected: Any, got: Any, rtol: float, atol: float) -> Iterator[str]:
    if isinstance(expected, torch.Tensor) and isinstance(got, torch.Tensor):
        if not (expected.is_floating_point() or expected.is_complex()):
            rtol = atol = 0.0
        if _agree(expected, got, rtol, atol):
            return
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
            not math.isinf(abs(expected))  # any number is within a relative tolerance of infinity
            and abs(expected - got) <= atol + rtol * abs(expected)
        )
        if not close:
            yield f"{place}: {got!r}, not {expected!r}"
    elif type(expected) is not type(got) or expected != got:
        yield f"{place}: {_short(got)}, not {_short(expected)}"


def _agree(expected: torch.Tensor, got: torch.Tensor, rtol: float, atol: float) -> bool:
    """Return whether two tensors agree; False also if only assert_close can compare them.

    That imports torch.distributed.tensor, and sympy with it, which takes more time than packing does.
    """
    try:
        kinds = {(type(each), each.layout, each.shape, each.dtype, each.device) for each in (expected, got)}
        plainly = len(kinds) == 1 and type(got) is torch.Tensor and got.layout is torch.strided
        return plainly and torch.allclose(got, expected, rtol, atol, equal_nan=True)
    except RuntimeError:  # a kind of tensor for which torch lacks operators
        return False


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


def _describe(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return {"tensor": {"dtype": str(value.dtype).removeprefix("torch."), "shape": list(value.shape)}}
    if isinstance(value, Mapping):
        return {"dict": {str(key): _describe(part) for key, part in value.items()}}
    if isinstance(value, (list, tuple)):  # includes named tuples and torch.Size
        return {"list" if isinstance(value, list) else "tuple": [_describe(part) for part in value]}
    return {"type": type(value).__qualname__}


def seed_all(seed: int) -> None:
    """Seed the random number generators of torch, Python and numpy."""
    torch.manual_seed(seed)
    random.seed(seed)
    try:
        import numpy as np
    except ModuleNotFoundError:
        return
    np.random.seed(seed)
