"""What a request's body means: the table in ``interpool.handler.backend.inputs``, row by row."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st
from tensor_bytes import npy, saved

from interpool.handler.backend.inputs import Arguments, arguments
from interpool.handler.errors import InputError

JSON = {"content-type": "application/json"}


def _body(value: object, content_type: str = "application/json") -> Arguments:
    """A plain body, decoded as far as TorchServe decodes it."""
    return arguments({"body": value}, {"body": {"content-type": content_type}})


def _only(call: Arguments) -> Any:
    assert not call.named
    (value,) = call.positional
    return value


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        ([1, 2], torch.int64),
        ([1.0, 2], torch.float32),
        ([True, False], torch.bool),
        ([[1, 2], [3, 4]], torch.int64),
        ([], torch.float32),
    ],
)
def test_a_list_of_numbers_is_a_tensor(value: list[Any], dtype: torch.dtype) -> None:
    tensor = _only(_body(value))
    assert tensor.dtype == dtype
    assert tensor.tolist() == value


@pytest.mark.parametrize("value", ["text", 5, 1.5, True, None, ["a", "b"], [1, "b"], [[None]]])
def test_other_json_stays_what_it_is(value: object) -> None:
    assert _only(_body(value)) == value


@pytest.mark.parametrize("field", ["body", "data"])
def test_a_body_and_a_field_named_data_are_the_positional_argument(field: str) -> None:
    assert _only(arguments({field: "text"}, {})) == "text"


def test_an_object_is_named_arguments() -> None:
    call = _body({"x": [1, 2], "flag": True})
    assert call.positional == ()
    assert call.named["x"].tolist() == [1, 2]
    assert call.named["flag"] is True


def test_inputs_hold_the_argument_and_dtype_its_type() -> None:
    assert _only(_body({"inputs": [1, 2], "dtype": "float64"})).dtype == torch.float64
    assert _body({"inputs": {"x": [1]}, "dtype": "int32"}).named["x"].dtype == torch.int32
    assert set(_body({"inputs": [1], "other": 2}).named) == {"inputs", "other"}


@pytest.mark.parametrize("dtype", ["floaty", "nn", 3, ["float32"]])
def test_an_unknown_dtype_is_refused(dtype: object) -> None:
    with pytest.raises(InputError, match="must name a torch type"):
        _body({"inputs": [1], "dtype": dtype})


def test_a_dtype_imports_no_module_that_torch_defers(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(torch, "__getattr__", asked.append)
    with pytest.raises(InputError, match="must name a torch type"):
        _body({"inputs": [1], "dtype": "deferred"})
    assert asked == []


@pytest.mark.parametrize("value", [[[1], [1, 2]], [1, [2]], [10**30]])
def test_numbers_that_make_no_tensor_are_refused(value: object) -> None:
    with pytest.raises(InputError, match="not a rectangular array"):
        _body(value)


def test_json_that_torchserve_left_as_bytes_is_decoded() -> None:
    assert _only(_body(bytearray(b"[1, 2]"), "application/json; charset=utf-8")).tolist() == [1, 2]
    with pytest.raises(InputError, match="body is not JSON"):
        _body(bytearray(b"{"))


def test_text_is_a_string_and_must_be_utf8() -> None:
    assert _only(_body(bytearray("ö".encode()), "text/plain; charset=utf-8")) == "ö"
    with pytest.raises(InputError, match="is not UTF-8"):
        _body(bytearray(b"\xff"), "text/plain")


@pytest.mark.parametrize("content_type", ["application/octet-stream", "", "image/jpeg"])
def test_a_torch_save_file_is_loaded(content_type: str) -> None:
    assert _only(_body(bytearray(saved(torch.tensor([1.0]))), content_type)).tolist() == [1.0]
    with pytest.raises(InputError, match="the format before"):
        _body(bytearray(saved([1], _use_new_zipfile_serialization=False)), content_type)


def test_a_safetensors_file_is_named_arguments_and_inputs_the_positional_one() -> None:
    def body(**tensors: torch.Tensor) -> Arguments:
        return _body(bytearray(safetensors.torch.save(tensors)), "application/x-safetensors")

    assert body(x=torch.ones(2), y=torch.ones(3)).named.keys() == {"x", "y"}
    assert _only(body(inputs=torch.tensor([1.0]))).tolist() == [1.0]
    with pytest.raises(InputError, match="no safetensors file"):
        _body(bytearray(b"x"), "application/x-safetensors")


def test_an_npy_file_is_the_positional_argument() -> None:
    read = _only(_body(bytearray(npy(np.array([[1, 2]], dtype=np.int32))), "application/x-npy"))
    assert (read.dtype, read.tolist()) == (torch.int32, [[1, 2]])


def test_a_saved_dict_is_named_arguments() -> None:
    data = bytearray(saved({"x": torch.tensor([1.0]), "n": 2}))
    call = _body(data, "application/octet-stream")
    assert call.named["x"].tolist() == [1.0]
    assert call.named["n"] == 2


def test_other_bytes_stay_bytes() -> None:
    assert _only(_body(bytearray(b"\x00"), "application/octet-stream")) == b"\x00"
    assert _only(_body(bytearray(b"PK\x03\x04 no zip"), "")) == b"PK\x03\x04 no zip"
    assert _body(bytearray(b"\x00"), "").bytes_fields() == ["body"]


@pytest.mark.parametrize("field", ["body", "data"])
def test_a_modules_body_without_a_content_type_is_json_if_it_can_be(field: str) -> None:
    def call(data: bytes) -> Arguments:
        return arguments({field: bytearray(data)}, {field: {"content-type": ""}}, is_for_module=True)

    assert _only(call(b"[1, 2]")).tolist() == [1, 2]
    assert call(b'{"x": [1.0]}').named["x"].tolist() == [1.0]
    assert call(b"a text").bytes_fields() == ["body"]
    assert call(b"\xff").bytes_fields() == ["body"]


def test_form_fields_are_named_arguments() -> None:
    row = {"x": bytearray(b"[1]"), "text": bytearray(b"hi"), "raw": bytearray(b"\xff"), "one": "1"}
    headers = {name: {"content-type": ""} for name in row}
    call = arguments(row, headers)
    assert call.positional == ()
    assert call.named["x"].tolist() == [1]
    assert (call.named["text"], call.named["raw"], call.named["one"]) == ("hi", b"\xff", "1")
    assert call.bytes_fields() == ["raw"]
    assert arguments({"only": "x"}, {}).named == {"only": "x"}


def test_an_empty_request_and_a_form_encoded_one_are_refused_with_the_remedy() -> None:
    with pytest.raises(InputError, match="no body"):
        arguments({}, {})
    with pytest.raises(InputError, match="-H 'Content-Type: application/json'"):
        arguments({}, {"Content-Type": "application/x-www-form-urlencoded"})


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(_json)
def test_any_json_is_understood_or_refused(value: object) -> None:
    with contextlib.suppress(InputError):
        _body(bytearray(json.dumps(value).encode()))


@given(st.binary(max_size=200), st.sampled_from(["", "text/plain", "application/json", "x/y"]))
def test_any_bytes_are_understood_or_refused(data: bytes, content_type: str) -> None:
    with contextlib.suppress(InputError):
        _body(bytearray(data), content_type)
