"""Binary tensors of the Open Inference Protocol: their elements follow the JSON instead of being in it.

See the protocol's extension "binary tensor data". A request's header ``Inference-Header-Content-Length`` says
how many bytes of the body are JSON. The elements of each input that has ``binary_data_size`` among its
parameters follow, in order. Numbers are little-endian, in row-major order. Each element of BYTES follows
its length, in four bytes. Outputs are sent in the same way if the request asks for that.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from interpool.handler.backend.dense_tensors import DenseTensors, require_sizes
from interpool.handler.errors import InputError

LENGTH_HEADER = "Inference-Header-Content-Length"
_SIZE = "binary_data_size"
_LENGTH_BYTES = 4
_MOST_DIGITS = 18  # of a number of bytes


class BinaryAnswer(NamedTuple):
    """A whole answer.

    Attributes:
        body: JSON, followed by elements.
        json_bytes: how many bytes of the body are JSON.
    """

    body: bytes
    json_bytes: int


def json_length(headers: Mapping[str, Any]) -> int | None:
    """How many bytes of a body are JSON; None if no header says so.

    Raises:
        InputError: the header is not a number of bytes.
    """
    for name, value in headers.items():
        if name.lower() == LENGTH_HEADER.lower():
            text = str(value)
            if not (text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS):
                raise InputError(f"the header {LENGTH_HEADER} is a number of bytes, not {text[:40]!r}")
            return int(text)
    return None


class BinaryInputs:
    """The elements that follow a request's JSON; its inputs take them one after the other.

    Args:
        body: the whole body.
        begin: the offset of the first element in the body, in bytes.
    """

    def __init__(self, body: bytes | bytearray, begin: int) -> None:
        self._body = body
        self._at = begin
        self._tensors = DenseTensors("the body", body)

    def take(self, name: str, described: Mapping[str, Any], dtype: torch.dtype | None) -> Any:
        """Take the next input.

        Args:
            name: of the input, for messages.
            described: the input's object in the JSON; its parameters include ``binary_data_size``.
            dtype: of the elements; None for BYTES.

        Returns:
            A tensor of the input's shape; for BYTES a flat list of bytes.

        Raises:
            InputError: the JSON makes a wrong claim about the input.
        """
        size, shape = described["parameters"][_SIZE], described.get("shape")
        if type(size) is not int or size < 0 or size > len(self._body) - self._at:
            left = len(self._body) - self._at
            raise InputError(
                f"input {name!r}: its {_SIZE} is {size!r}, and {left} bytes are left in the body"
            )
        if not isinstance(shape, list) or not all(type(each) is int and each >= 0 for each in shape):
            raise InputError(f"input {name!r}: with binary data, its shape holds whole numbers from 0 on")
        require_sizes(f"input {name!r} is a tensor", shape)
        place = range(self._at, self._at + size)
        self._at += size
        if dtype is None:
            return self._strings(name, place, math.prod(shape))
        wanted = math.prod(shape) * dtype.itemsize
        if size != wanted:
            raise InputError(
                f"input {name!r}: its shape {shape} takes {wanted} bytes, and its {_SIZE} is {size}"
            )
        return self._tensors.make(dtype, place, shape)

    def end(self) -> None:
        """Check that the inputs have taken all elements.

        Raises:
            InputError: bytes are left.
        """
        if self._at != len(self._body):
            raise InputError(
                f"{len(self._body) - self._at} bytes of the body belong to no input: say each one's {_SIZE}"
            )

    def _strings(self, name: str, place: range, count: int) -> list[bytes]:
        found, at = [], place.start
        while at < place.stop:
            begin = at + _LENGTH_BYTES
            at = begin + int.from_bytes(self._body[at:begin], "little")
            if at > place.stop:
                raise InputError(f"input {name!r}: an element of BYTES has a length beyond its binary data")
            found.append(bytes(self._body[begin:at]))
        if len(found) != count:
            raise InputError(
                f"input {name!r}: its binary data has {len(found)} elements, and its shape {count}"
            )
        return found


def is_binary(described: Mapping[str, Any]) -> bool:
    """Whether an input's elements follow the JSON."""
    parameters = described.get("parameters")
    return isinstance(parameters, dict) and _SIZE in parameters


class WantedOutputs:
    """Says which outputs a request wants to follow the JSON.

    Args:
        content: the request's JSON.
    """

    def __init__(self, content: Mapping[str, Any]) -> None:
        self._all = _flag(content, "binary_data_output") or False
        named = content.get("outputs")
        self._named = {
            str(each.get("name")): flag
            for each in (named if isinstance(named, list) else ())
            if isinstance(each, dict) and (flag := _flag(each, "binary_data")) is not None
        }

    @property
    def any(self) -> bool:
        """Whether there may be such outputs."""
        return self._all or any(self._named.values())

    def binary(self, name: str) -> bool:
        """Whether the output of that name is one."""
        return self._named.get(name, self._all)


def _flag(content: Mapping[str, Any], name: str) -> bool | None:
    parameters = content.get("parameters")
    value = parameters.get(name) if isinstance(parameters, dict) else None
    return value if isinstance(value, bool) else None


def elements_of(tensor: torch.Tensor) -> memoryview:
    """A tensor's elements in the protocol's form; a view if the tensor already has them in that form."""
    dense = tensor.detach().cpu().contiguous().flatten()
    elements: memoryview = dense.view(torch.uint8).numpy().data
    return elements


def strings_of(values: list[str] | list[bytes]) -> bytes:
    """Elements of BYTES, each after its length."""
    encoded = [value.encode() if isinstance(value, str) else value for value in values]
    return b"".join(
        part for value in encoded for part in (len(value).to_bytes(_LENGTH_BYTES, "little"), value)
    )


def answer_of(content: dict[str, Any], elements: list[memoryview | bytes]) -> BinaryAnswer:
    """Make an answer whose outputs' elements follow its JSON.

    Args:
        content: the JSON.
        elements: those of the outputs with ``binary_data_size`` in the JSON, in order.
    """
    head = json.dumps(content).encode()
    return BinaryAnswer(b"".join((head, *elements)), len(head))


def behind(described: dict[str, Any], elements: memoryview | bytes) -> dict[str, Any]:
    """Return the description of an output whose elements follow the JSON.

    Args:
        described: the output's object in the JSON; its ``data`` and ``parameters`` are left out.
        elements: the output's elements.
    """
    kept = {name: value for name, value in described.items() if name not in ("data", "parameters")}
    return {**kept, "parameters": {_SIZE: len(elements)}}
