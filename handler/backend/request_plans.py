"""The ways to make requests of a model's example inputs, with the proofs that requests can share a call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import Any

import torch

from interpool.archiver_ext.verify.self_test import Sample, answer, differences
from interpool.handler.backend import row_proof
from interpool.handler.backend.error_text import describe
from interpool.handler.backend.inputs import Arguments
from interpool.handler.backend.row_proof import NotProven
from interpool.native.archive.format import Batches, EntryKind, Parts, SelfTest, Serving

_WAYS: tuple[Batches, ...] = ("stack", "batch", "each")
WAYS_IN_WORDS = {
    "stack": "as samples that are stacked",
    "batch": "as whole batches",
    "each": "as one call for each request",
    None: "as a handler's batch",
}
# Of the tolerance: a batch of another size adds numbers in another order.
SLACK = 10.0


@dataclass(frozen=True)
class Plan:
    """A way of making requests of the example inputs.

    Attributes:
        way: how requests become calls; None for a handler.
        parts: the proof that several can share a call.
        requests: one or more, each what one request is to mean: a call, or a handler's row.
        expected: what each is to be answered.
        part: of the self-test's answer, that the first is.
        whole: whether the first is all of the example inputs.
    """

    way: Batches | None
    parts: Parts
    requests: Sequence[Any]
    expected: Sequence[Any]
    part: int | None
    whole: bool


class CalledModel:
    """The model, with the inputs and the answer of its self-test.

    Args:
        make: loads the entry anew.
        kind: of the entry.
        held: the self-test's unpickled content.
        test: the self-test in the manifest.
        serving: how to serve the entry.

    Attributes:
        answer_bytes: the length of the first answer to the latest batch, in bytes.
    """

    def __init__(
        self, make: Callable[[], Any], kind: EntryKind, held: Any, test: SelfTest, serving: Serving
    ) -> None:
        self.make, self.kind, self.test, self.serving = make, kind, test, serving
        self.sample = Sample(tuple(held["args"]), dict(held["kwargs"]))
        self.expected = held["expected"]
        self.answer_bytes = 0

    def direct(self, *asked: tuple[Sample, int]) -> list[Any]:
        """Return a new model's answers to inputs, called one after the other, each with its seed."""
        entry = self.make()
        return [answer(entry, self.kind, sample, seed, serving=self.serving) for sample, seed in asked]

    @cached_property
    def repeatable(self) -> bool:
        """Whether it answers the same when it is called again, and with another seed."""
        seed = self.test["seed"]
        first, *again = self.direct(*((self.sample, seed + more) for more in (0, 0, 1)))
        return not any(self.differences(first, got) for got in again)

    @cached_property
    def other(self) -> tuple[Arguments, Any] | None:
        """Other inputs of the same kind, with the model's answer to them; None if it takes no others."""
        call = Arguments(self.sample.args, self.sample.kwargs)
        if not any(tensor.is_floating_point() and tensor.dim() for tensor in _tensors(call)):
            return None
        other = call.with_tensors(lambda t: t.flip(*range(t.dim())) if t.is_floating_point() else t)
        try:
            return other, *self.direct((Sample(other.positional, other.named), self.test["seed"]))
        except Exception:  # noqa: BLE001 -- its forward may require an order of the values
            return None

    def prove(self, requests: Sequence[Arguments], batches: Batches) -> Parts:
        """Prove which parts of a batch's answer belong to one request.

        Args:
            requests: one or more calls that the model takes; for ``batch``, of different batch sizes.
            batches: how requests become calls, see ``Batches``.

        Raises:
            NotProven: there is no proof, or the model raised.
        """
        entry = self.make()

        def ask(call: Arguments) -> Any:
            sample = Sample(call.positional, call.named)
            return answer(entry, self.kind, sample, self.test["seed"], serving=self.serving)

        try:
            return row_proof.prove(ask, requests, batches, self.nearly, self.exactly)
        except NotProven:
            raise
        except Exception as error:  # noqa: BLE001 -- whatever the model raises
            raise NotProven(f"several at once make it raise {describe(error)}") from None

    def nearly(self, expected: Any, got: Any) -> list[str]:
        """Return the differences of two answers that exceed ``SLACK`` times the tolerance.

        A batch of another size may cause smaller differences.

        Args:
            expected: one answer, as plain data.
            got: the other answer.
        """
        return self.differences(expected, got, SLACK)

    @staticmethod
    def exactly(expected: Any, got: Any) -> list[str]:
        """Return all differences of two answers.

        Args:
            expected: one answer, as plain data.
            got: the other answer.
        """
        return differences(expected, got, 0.0, 0.0)

    def differences(self, expected: Any, got: Any, slack: float = 1.0) -> list[str]:
        """Return the differences of two answers that exceed the self-test's tolerance.

        Args:
            expected: one answer, as plain data.
            got: the other answer.
            slack: factor of the tolerance.
        """
        return differences(expected, got, self.test["rtol"] * slack, self.test["atol"] * slack)


def plans(asked: CalledModel, unproven: list[str]) -> Iterator[Plan]:
    """Yield the ways to try, the preferred one first.

    Args:
        asked: the model.
        unproven: gets a line for each way that needs a proof that does not exist.
    """
    whole = Arguments(asked.sample.args, asked.sample.kwargs)
    given = asked.serving["batches"]
    ways = (given,) if given else _WAYS if asked.kind == "module" and _tensors(whole) else _WAYS[-1:]
    for way in ways:
        try:
            if way == "stack":
                yield from _samples_plans(asked, whole, unproven)
            elif way == "batch":
                short = whole.with_tensors(lambda tensor: tensor[:1] if tensor.dim() else tensor)
                parts = asked.prove([whole, short], way)
                yield _whole_plan(asked, way, whole, parts)
            else:
                yield _whole_plan(asked, way, whole, None)
        except NotProven as error:
            unproven.append(f"{WAYS_IN_WORDS[way]}: {error}")


def _whole_plan(asked: CalledModel, way: Batches, whole: Arguments, parts: Parts) -> Plan:
    others = () if asked.other is None else (asked.other,)
    requests, expected = zip((whole, asked.expected), *others, strict=True)
    return Plan(way, parts, requests, expected, None, whole=True)


def _samples_plans(asked: CalledModel, whole: Arguments, unproven: list[str]) -> Iterator[Plan]:
    """The example inputs as a batch, whose samples are the requests; then as one sample."""
    rows = _rows(whole)
    if rows is not None:
        try:
            yield _rows_plan(asked, rows, asked.prove(rows, "stack"))
        except NotProven as error:
            unproven.append(f"{WAYS_IN_WORDS['stack']}, of which the example inputs are a batch: {error}")
    yield _whole_plan(asked, "stack", whole, asked.prove([whole], "stack"))


def _rows_plan(asked: CalledModel, rows: Sequence[Arguments], parts: Parts) -> Plan:
    batches = [([*rows[:2]], row_proof.divided(asked.expected, parts, len(rows)))]
    if len(rows) == 1 and asked.other is not None and (other := _rows(asked.other[0])) is not None:
        batches.append((other, row_proof.divided(asked.other[1], parts, 1)))
    requests = [row for given, _ in batches for row in given]
    expected = [part for given, parts_of in batches for part in parts_of[: len(given)]]
    return Plan("stack", parts, requests, expected, 0, whole=len(rows) == 1)


def handler_plans(asked: CalledModel) -> Iterator[Plan]:
    """Yield the one way to ask a handler: with the rows that it was given.

    Nothing is yielded if the handler gave another number of answers than rows.
    """
    rows = list(asked.sample.args[0])
    answers = asked.expected if isinstance(asked.expected, list) else []
    if len(answers) == len(rows):  # else TorchServe answers 503, and so does _first_that_works
        yield Plan(None, None, rows, answers, 0, whole=len(rows) == 1)


def _tensors(call: Arguments) -> list[torch.Tensor]:
    return [each for each in (*call.positional, *call.named.values()) if isinstance(each, torch.Tensor)]


def _rows(call: Arguments) -> list[Arguments] | None:
    """The samples of a batch; None if its tensors have no first dimension in common."""
    sizes = {tensor.size(0) if tensor.dim() > 1 else 0 for tensor in _tensors(call)}
    if len(sizes) != 1 or 0 in sizes:
        return None
    return [call.with_tensors(itemgetter(index)) for index in range(sizes.pop())]
