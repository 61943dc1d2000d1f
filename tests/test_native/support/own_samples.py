"""torch's own samples, asked for in one interpreter and asked again in another: what all such guests share.

A guest says what is asked. In a first interpreter what each sample gives is recorded. A second one is to give
the same, and says which sample had it import torch's compiler. ``asked_again`` has two interpreters do so.
"""

from __future__ import annotations

import io
import sys
import types
import warnings
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import torch
from namespaces import deferred

from interpool.native.inside.lean_imports import deferred_count
from interpool.native.upstream.torch_imports import FAMILIES, REGISTERING

Asking = tuple[Any, ...]
Entries = Iterable[tuple[str, Iterable[Asking]]]
Ask = Callable[..., Iterable[Any]]


class Samples:
    """Samples of many entries, and how they are asked.

    Args:
        entries: gives names with samples of each, which can be pickled. They may be torch's tests' own.
        ask: takes a sample's parts, and gives tensors, numbers and strings.
        reference: gives what ``ask`` is to give, in another way; it is recorded in its place.
        needs_all: whether torch itself imports its compiler for what is asked.
    """

    def __init__(
        self,
        entries: Callable[[], Entries],
        ask: Ask,
        *,
        reference: Ask | None = None,
        needs_all: bool = False,
    ) -> None:
        self._entries = entries
        self._ask = ask
        self._reference = reference
        self._needs_all = needs_all

    def record(self, path: str, samples: int, stride: int) -> tuple[int, int, list[str]]:
        """Writes that many samples of each ``stride``-th entry, with what they give.

        Returns:
            How many entries and samples there are, and where the reference differs. Samples that give an
            error are left out, and those that cannot be written.
        """
        have_expecttest()
        warnings.simplefilter("ignore")
        recorded: dict[str, list[tuple[bytes, bytes]]] = {}
        differing = []
        for name, askings in islice(self._entries(), None, None, stride):
            for asking in islice(_until_error(askings), samples):
                try:
                    written = _written(asking)  # tensors that were computed are read as leaves
                    found = _answer(self._ask, written)
                    expected = _answer(self._reference, written) if self._reference else found
                    recorded.setdefault(name, []).append((written, _written(expected)))
                except Exception:  # noqa: BLE001
                    continue
                if difference := _difference(found, expected):
                    differing.append(f"{name}: {difference}")
        torch.save(recorded, path)
        return len(recorded), sum(len(cases) for cases in recorded.values()), differing

    def answer(self, path: str, answers: str, first: int) -> tuple[int, str]:
        """Asks again, from the ``first``-th entry on, until one has had the compiler imported.

        If all need that, it asks to the end.

        Returns:
            Which entry is next, and the name of the one that has had it imported, if any.
        """
        have_expecttest()
        warnings.simplefilter("ignore")
        recorded = torch.load(path, weights_only=False)
        found: list[tuple[str, bytes | str, bytes]] = []
        touching = ""
        before = deferred_count(), _late_compilers()
        assert before[1] or self._needs_all, "torch's compiler was imported before"
        for name in list(recorded)[first:]:
            for written, expected in recorded[name]:
                try:
                    found.append((name, _written(_answer(self._ask, written)), expected))
                except Exception as error:  # noqa: BLE001
                    found.append((name, f"{type(error).__name__}: {error}", expected))
            first += 1
            if not self._needs_all and deferred_count() < before[0] and _late_compilers() < before[1]:
                touching = name
                break
        torch.save(found, answers)
        return first, touching

    def compare(self, answers: str) -> list[str]:
        """What of these answers is not as it was. For an interpreter that has all of torch: it needs it."""
        wrong = []
        for name, found, expected in torch.load(answers, weights_only=False):
            difference = found if isinstance(found, str) else _difference(_read(found), _read(expected))
            if difference:
                wrong.append(f"{name}: {difference}")
        return wrong


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in lists, tuples and dictionaries."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for each in value:
            yield from tensors(each)
    elif isinstance(value, dict):
        yield from tensors(list(value.values()))


def gradients(outputs: Any, inputs: Any, *, twice: bool = False) -> list[torch.Tensor | None]:
    """Of all that requires one, for some weights of the outputs; and of these, as outputs of theirs."""
    leaves = [each for each in tensors(inputs) if each.requires_grad]
    found: list[torch.Tensor | None] = []
    for again in (False, True)[: 1 + twice]:
        # To a number: torch imports its compiler if it is given weights.
        weighted = [(each * torch.rand_like(each)).sum() for each in tensors(outputs) if each.requires_grad]
        if not weighted or not leaves:
            break
        total = sum((each.real if each.is_complex() else each for each in weighted), torch.zeros(()))
        outputs = torch.autograd.grad([total], leaves, allow_unused=True, create_graph=twice and not again)
        found += outputs
    return found


def have_expecttest() -> None:
    """Stand in for what torch's tests want, and its samples do not."""
    if "expecttest" not in sys.modules:
        stub = types.ModuleType("expecttest")
        stub.TestCase = object  # type: ignore[attr-defined]
        sys.modules["expecttest"] = stub


def _late_compilers() -> int:
    return deferred(*FAMILIES[REGISTERING])


def _until_error(askings: Iterable[Asking]) -> Iterator[Asking]:
    torch.manual_seed(0)
    try:
        yield from askings
    except Exception:  # noqa: BLE001 (not all have samples of this type, or can be written as torch's tests do)
        return


def _answer(ask: Ask, written: bytes) -> list[Any]:
    asking = _read(written)
    torch.manual_seed(0)
    return [_plain(each) if isinstance(each, torch.Tensor) else each for each in ask(*asking)]


def _plain(answer: torch.Tensor) -> torch.Tensor:
    """It can be written."""
    return torch.zeros_like(answer) if answer._is_zerotensor() else answer.detach()


def _written(value: Any) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def _read(written: bytes) -> Any:
    return torch.load(io.BytesIO(written), weights_only=False)


def _difference(found: list[Any], expected: list[Any]) -> str:
    if len(found) != len(expected):
        return f"{len(found)} answers, not {len(expected)}"
    for one, other in zip(found, expected, strict=True):
        if isinstance(other, str):
            if one != other:
                return f"{one} is not {other}"
            continue
        try:
            torch.testing.assert_close(one, other, equal_nan=True)
        except Exception as error:  # noqa: BLE001
            return str(error)
    return ""
