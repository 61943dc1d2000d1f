"""Tensors of the Open Inference Protocol whose elements lie behind the JSON, both ways."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ts.context import Context, RequestProcessor

from interpool.handler.backend.binary_tensors import LENGTH_HEADER
from interpool.handler.backend.defaults import DefaultHandler
from interpool.handler.backend.open_inference import _DATATYPES
from interpool.native.archive.format import SERVED_PLAINLY

ALL_OUT = {"parameters": {"binary_data_output": True}}


def _ask(entry: Any, body: bytes | bytearray, **headers: str) -> tuple[int, bytes, dict[str, str]]:
    """The status, body and headers of the answer to one request."""
    context = Context("m", "/nowhere", {"model": {"modelName": "m"}}, 1, None, "0")
    context.request_processor = [RequestProcessor(headers)]
    context.request_ids = {0: "id"}
    handler = DefaultHandler(entry, "m", tracebacks=False, envelope="kservev2", serving=SERVED_PLAINLY)
    (answer,) = handler.handle([{"body": body}], context)
    status, _ = context.get_response_status(0)
    said = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    return status, said, dict(context.get_response_headers(0))


def _body(inputs: list[tuple[str, list[int], str, bytes]], **more: Any) -> tuple[bytes, dict[str, str]]:
    described = [
        {"name": name, "shape": shape, "datatype": kind, "parameters": {"binary_data_size": len(data)}}
        for name, shape, kind, data in inputs
    ]
    head = json.dumps({"inputs": described, **more}).encode()
    return head + b"".join(data for *_, data in inputs), {LENGTH_HEADER: str(len(head))}


def _sent(inputs: list[tuple[str, list[int], str, bytes]], entry: Any, **more: Any) -> tuple[int, Any, bytes]:
    """The status of an answer, its JSON, and what lies behind that."""
    body, headers = _body(inputs, **more)
    status, said, answered = _ask(entry, bytearray(body), **headers)
    length = int(answered.get(LENGTH_HEADER, len(said)))
    return status, json.loads(said[:length]), said[length:]


def _bytes_of(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes()


@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(_DATATYPES)), st.lists(st.integers(0, 4), max_size=3)),
        min_size=1,
        max_size=4,
    ),
    st.randoms(),
)
def test_tensors_come_and_go_as_they_are(kinds: list[tuple[str, list[int]]], chance: Any) -> None:
    inputs = []
    for number, (kind, shape) in enumerate(kinds):
        count = math.prod(shape) * _DATATYPES[kind].itemsize
        data = bytes(chance.randrange(2) if kind == "BOOL" else chance.randrange(256) for _ in range(count))
        inputs.append((f"x{number}", shape, kind, data))
    seen: dict[str, torch.Tensor] = {}

    def entry(*args: torch.Tensor, **named: torch.Tensor) -> dict[str, torch.Tensor]:
        seen.update(named or {"x0": args[0]})
        return dict(seen)

    status, content, elements = _sent(inputs, entry, **ALL_OUT)
    assert status == 200, content
    assert elements == b"".join(data for *_, data in inputs)
    for (name, shape, kind, data), output in zip(inputs, content["outputs"], strict=True):
        assert (list(seen[name].shape), seen[name].dtype) == (shape, _DATATYPES[kind])
        assert _bytes_of(seen[name]) == data
        parameters = {"binary_data_size": len(data)}
        assert output == {"name": name, "shape": shape, "datatype": kind, "parameters": parameters}


def test_elements_of_bytes_follow_their_lengths() -> None:
    data = b"\x01\x00\x00\x00a\x00\x00\x00\x00\x03\x00\x00\x00\xff\x00\xfe"
    status, content, elements = _sent([("x", [3, 1], "BYTES", data)], repr, **ALL_OUT)
    said = b"[[b'a'], [b''], [b'\\xff\\x00\\xfe']]"
    assert status == 200
    assert elements == len(said).to_bytes(4, "little") + said
    assert content["outputs"][0]["datatype"] == "BYTES"


def test_only_the_outputs_that_are_asked_for_lie_behind_the_json() -> None:
    wanted = [{"name": "b", "parameters": {"binary_data": True}}, {"name": "a"}]
    result = {"a": torch.tensor([1, 2]), "b": torch.tensor([1.5])}
    body = [("x", [1], "UINT8", b"\x07")]
    _, content, elements = _sent(body, lambda x: result, outputs=wanted)
    assert [output["name"] for output in content["outputs"]] == ["a", "b"]
    assert content["outputs"][0]["data"] == [1, 2]
    assert content["outputs"][1]["parameters"] == {"binary_data_size": 4}
    assert elements == _bytes_of(torch.tensor([1.5]))
    wanted = [{"name": "a", "parameters": {"binary_data": False}}]
    _, content, elements = _sent(body, lambda x: result, outputs=wanted, **ALL_OUT)
    assert content["outputs"][0]["data"] == [1, 2]
    assert len(elements) == 4


def test_inputs_in_the_json_and_behind_it_may_be_mixed_and_the_answer_is_json_by_default() -> None:
    inputs = [
        {"name": "x", "shape": [2], "datatype": "INT32", "parameters": {"binary_data_size": 8}},
        {"name": "y", "shape": [2], "datatype": "INT32", "data": [10, 20]},
    ]
    head = json.dumps({"inputs": inputs}).encode()
    body = head + b"\x01\x00\x00\x00\x02\x00\x00\x00"
    status, said, headers = _ask(lambda x, y: x + y, body, **{LENGTH_HEADER.lower(): str(len(head))})
    assert status == 200
    assert json.loads(said)["outputs"][0]["data"] == [11, 22]
    assert LENGTH_HEADER not in headers


def _claim(shape: Any, size: Any, kind: str = "INT16") -> Any:
    parameters = {"binary_data_size": size}
    return {"name": "x", "shape": shape, "datatype": kind, "parameters": parameters}


def _in_json(shape: Any, kind: str = "FP32") -> Any:
    return {"name": "x", "shape": shape, "datatype": kind, "data": []}


NO_ELEMENTS = "input 'x' is a tensor of no elements and huge sizes: send a tensor that has elements"


@pytest.mark.parametrize(
    ("described", "data", "said"),
    [
        ([_claim([2], 4)], b"abc", "3 bytes are left"),
        ([_claim([2], -1)], b"abcd", "binary_data_size is -1"),
        ([_claim([2], "4")], b"abcd", "binary_data_size is '4'"),
        ([_claim([2], True)], b"abcd", "binary_data_size is True"),
        ([_claim([3], 4)], b"abcd", "takes 6 bytes"),
        ([_claim([-1], 4)], b"abcd", "whole numbers from 0 on"),
        ([_claim([2.0], 4)], b"abcd", "whole numbers from 0 on"),
        ([_claim("2", 4)], b"abcd", "whole numbers from 0 on"),
        ([_claim([2], 4)], b"abcde", "1 bytes of the body belong to no input"),
        ([_claim([2**40, 2**40, 0], 0)], b"", NO_ELEMENTS),
        ([_in_json([2**30, 0])], b"", NO_ELEMENTS),
        ([_in_json([2**30, -1])], b"", NO_ELEMENTS),
        ([_in_json([-1, 2**30])], b"", NO_ELEMENTS),
        ([_in_json([1] * 65)], b"", "65 dimensions"),
        ([_claim([1] * 65, 2)], b"ab", "65 dimensions"),
        ([_claim([1] * 65, 2, "BYTES")], b"ab", "65 dimensions"),
        ([_claim([2**63], 2, "BYTES")], b"ab", "a size of 2**63 or more"),
        ([_in_json([10**4000] * 9, "BYTES")], b"", "a size of 2**63"),
        ([_claim([1], 8, "BYTES")], b"\xff\xff\xff\xffabcd", "a length beyond"),
        ([_claim([1], 3, "BYTES")], b"\x00\x00\x00", "a length beyond"),
        ([_claim([2], 5, "BYTES")], b"\x01\x00\x00\x00a", "has 1 elements, and its shape 2"),
        ([_claim([1], 2, "FP31")], b"ab", "datatype must be one of"),
    ],
)
def test_a_wrong_claim_is_refused_with_what_is_wrong(described: Any, data: bytes, said: str) -> None:
    head = json.dumps({"inputs": described}).encode()
    status, answer, _ = _ask(lambda x: x, head + data, **{LENGTH_HEADER: str(len(head))})
    assert status == 400, answer
    assert said in json.loads(answer)["message"]


@pytest.mark.parametrize(
    ("length", "said"),
    [
        ("9999", "the body has"),
        ("-1", "a number of bytes"),
        ("x", "a number of bytes"),
        ("9" * 5000, "a number of bytes"),
        ("1", "the body is none"),
    ],
)
def test_a_wrong_length_of_the_json_is_refused(length: str, said: str) -> None:
    body, _ = _body([("x", [2], "INT16", b"abcd")])
    status, answer, _ = _ask(lambda x: x, body, **{LENGTH_HEADER: length})
    assert status == 400, answer
    assert said in json.loads(answer)["message"]


def test_without_the_header_a_body_with_binary_data_is_refused_with_the_remedy() -> None:
    described = {"inputs": [_claim([2], 4)]}
    status, answer, _ = _ask(lambda x: x, json.dumps(described).encode())
    assert status == 400
    assert LENGTH_HEADER in json.loads(answer)["message"]


@given(st.binary(max_size=200), st.integers(0, 300))
def test_no_bytes_are_anything_but_refused_or_answered(body: bytes, length: int) -> None:
    status, _, _ = _ask(lambda x: x, body, **{LENGTH_HEADER: str(length)})
    assert status in (200, 400)
