from __future__ import annotations

import threading
from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from interpool.archiver_ext.verify.self_test import Sample, answer, differences, plain

TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}


@dataclass
class Output:
    logits: torch.Tensor
    label: str


Pair = namedtuple("Pair", "left right")


def test_answers_become_data_that_needs_no_class_of_the_models() -> None:
    found = plain(
        [Output(torch.ones(1, requires_grad=True), "cat"), Pair(1, {2: b"x"}), np.zeros(2), object()]
    )
    assert found[0]["label"] == "cat"
    assert not found[0]["logits"].requires_grad
    assert found[1] == [1, {"2": b"x"}]
    assert found[2].tolist() == [0.0, 0.0]
    assert found[3] == "an object of class object"


@pytest.mark.parametrize(
    ("array", "data"),
    [
        (np.array(["cat", "dog"]), ["cat", "dog"]),
        (np.array([{"a": 1}, None], dtype=object), [{"a": 1}, None]),
        (np.array([1.0, 2.0], dtype=">f4"), [1.0, 2.0]),
    ],
)
def test_an_array_that_no_tensor_can_hold_becomes_a_list(array: Any, data: list[Any]) -> None:
    assert plain(array) == data


def test_a_set_is_compared_by_what_is_in_it() -> None:
    assert plain({"b", "a"}) == ["a", "b"]


def test_objects_that_are_compared_by_their_class_only_are_listed() -> None:
    opaque: list[str] = []
    plain({"a": [object(), object()], "b": (1, "text", torch.ones(1))}, opaque)
    assert opaque == ["an object of class object"]


def test_a_text_that_reads_like_an_objects_class_is_a_text() -> None:
    opaque: list[str] = []
    text = "an object of class Cat was found"
    assert answer(lambda: {"label": text}, "callable", Sample((), {}), opaque=opaque) == {"label": text}
    assert opaque == []


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        (torch.ones(2), torch.ones(2) + 5e-5),
        (1.0, 1.00005),
        (float("nan"), float("nan")),
        (float("inf"), float("inf")),
        (complex("nan"), complex("nan")),
        (torch.tensor([float("nan")]), torch.tensor([float("nan")])),
        ({"a": [torch.arange(3), "b", None]}, {"a": [torch.arange(3), "b", None]}),
    ],
)
def test_rounding_is_no_difference(expected: Any, got: Any) -> None:
    assert differences(expected, got, **TOLERANCE) == []


def test_tensors_that_agree_need_none_of_torchs_modules_for_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first assert_close imports sympy, in every process and interpreter that compares answers."""
    monkeypatch.delattr(torch.testing, "assert_close")
    for tensor in (torch.ones(2), torch.tensor([float("nan")]), torch.arange(3), torch.tensor([True])):
        assert differences({"y": tensor}, {"y": tensor.clone()}, **TOLERANCE) == []


@pytest.mark.parametrize(
    ("expected", "got", "place"),
    [
        (torch.ones(2), torch.ones(2) + 1e-2, "answer"),
        (torch.ones(2), torch.ones(3), "answer"),
        (torch.ones(2), torch.ones(2, dtype=torch.float64), "answer"),
        (torch.tensor([100_000]), torch.tensor([100_001]), "answer"),
        (100_000, 100_001, "answer"),
        (1, True, "answer"),
        (1.0, 1, "answer"),
        (1.0, float("nan"), "answer"),
        (float("nan"), 1.0, "answer"),
        (torch.ones(1), torch.tensor([float("nan")]), "answer"),
        (float("inf"), 1.0, "answer"),
        (float("inf"), float("-inf"), "answer"),
        (complex("inf"), 1j, "answer"),
        (torch.tensor([float("inf")]), torch.ones(1), "answer"),
        ({"a": ["x", "y"]}, {"a": ["x", "z"]}, "answer['a'][1]"),
        ({"a": 1}, {"b": 1}, "answer"),
        ([1], [1, 2], "answer"),
        ("a", b"a", "answer"),
    ],
)
def test_a_difference_is_named_by_its_place(expected: Any, got: Any, place: str) -> None:
    (line,) = differences(expected, got, **TOLERANCE)
    assert line.startswith(f"{place}: ")


def test_random_numbers_are_the_same_for_each_call() -> None:
    def entry(scale: float) -> list[Any]:
        import random

        return [torch.rand(1) * scale, np.random.rand(), random.random()]

    first, second = (answer(entry, "callable", Sample.of({"scale": 2.0})) for _ in range(2))
    assert differences(first, second, rtol=0, atol=0) == []


def test_an_entry_changes_only_copies_of_its_inputs() -> None:
    shared = torch.ones(2)
    sample = Sample((shared, shared), {"row": {"body": "text"}})

    def entry(one: torch.Tensor, same: torch.Tensor, row: dict[str, str]) -> list[Any]:
        one.add_(1)
        return [same, row.pop("body")]

    for _ in range(2):
        first, second = answer(entry, "callable", sample)
        assert (first.tolist(), second) == ([2.0, 2.0], "text"), "what two arguments share stays shared"
    assert shared.tolist() == [1.0, 1.0]
    assert sample.kwargs == {"row": {"body": "text"}}


@pytest.mark.parametrize("given", [threading.Lock(), torch.ones(1, requires_grad=True) * 2])
def test_inputs_that_cannot_be_copied_are_given_as_they_are(given: Any) -> None:
    assert answer(lambda value: value is given, "callable", Sample((given,), {})) is True
