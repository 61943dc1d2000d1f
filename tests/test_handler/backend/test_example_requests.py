"""Example inputs as requests: what they mean when they have come over HTTP is what they were."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from interpool.archiver_ext.verify.self_test import differences, plain
from interpool.handler.backend.example_requests import BYTES, JSON, Form, forms_of, row_forms, row_of
from interpool.handler.backend.inputs import Arguments, arguments


def call(*args: Any, **kwargs: Any) -> Arguments:
    return Arguments(args, kwargs)


@pytest.mark.parametrize(
    "given",
    [
        call(torch.tensor([[0.1, 0.2], [1e-7, 3e7]])),
        call(torch.arange(3), torch.ones(2, 2)),
        call(torch.arange(3), scale=2.5),
        call(ids=torch.arange(3), mask=torch.tensor([True])),
        call(torch.ones(2, dtype=torch.float16)),
        call(torch.ones(2, dtype=torch.float64), other=torch.ones(1, dtype=torch.float64)),
        call("a text"),
        call(b"\x00bytes"),
        call(None),
        call(["a", "b"]),
        call({"a": 1}),
        call(args=torch.ones(1)),
        call(inputs=torch.ones(1), other=2),
        call(torch.tensor([float("nan"), float("inf")])),
    ],
)
def test_every_form_of_request_means_the_same_call(given: Arguments) -> None:
    forms = list(forms_of(given))
    assert forms
    for form in forms:
        got = arguments(*row_of(form))
        assert differences(plain(list(given)), plain(list(got)), 0, 0) == []
        tensors = [each for each in (*given.positional, *given.named.values()) if hasattr(each, "dtype")]
        others = [each for each in (*got.positional, *got.named.values()) if hasattr(each, "dtype")]
        assert [each.dtype for each in others] == [each.dtype for each in tensors]


def test_json_comes_first_and_has_no_more_digits_than_the_type() -> None:
    first, second = forms_of(call(torch.tensor([0.1])))
    assert first == Form(JSON, b"[0.1]")
    assert second.content_type == BYTES


def test_equal_inputs_give_equal_bytes() -> None:
    once, again = (list(forms_of(call(torch.arange(4.0), torch.arange(2)))) for _ in range(2))
    assert once == again


def test_inputs_that_json_cannot_express_are_saved_as_tensors() -> None:
    (form,) = forms_of(call(torch.ones(2, dtype=torch.complex64)))
    (value,) = arguments(*row_of(form)).positional
    assert value.dtype == torch.complex64


def test_a_large_input_is_not_written_as_json() -> None:
    (form,) = forms_of(call(torch.rand(300_000)))
    assert form.content_type == BYTES


def test_an_argument_that_cannot_be_sent_is_named() -> None:
    class Graph:
        """No request brings one."""

    with pytest.raises(TypeError, match=r"argument 'graph' holds .*it is a .*Graph"):
        list(forms_of(call(torch.ones(1), graph=Graph())))


@pytest.mark.parametrize(
    "row",
    [
        {"body": "text"},
        {"body": b"--\r\n\x00\r\n"},
        {"body": {"a": [1, 2]}},
        {"image": b"\r\n", "label": "x", "options": {"k": 1}},
    ],
)
def test_a_handlers_row_arrives_as_it_was(row: dict[str, Any]) -> None:
    form = list(row_forms(row))[-1]
    assert row_of(form)[0] == row


def test_a_row_that_no_request_brings_is_refused() -> None:
    with pytest.raises(TypeError, match=r"'body' is a torch\.Tensor"):
        list(row_forms({"body": torch.ones(1)}))


def test_a_single_field_comes_as_the_body_first() -> None:
    plain_body, form = row_forms({"data": {"a": 1}})
    assert json.loads(plain_body.body) == {"a": 1}
    assert row_of(form)[0] == {"data": {"a": 1}}
