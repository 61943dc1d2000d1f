"""Parses requests of the Open Inference Protocol, and makes its answers: the envelope ``kservev2``.

A tensor has the shape that the request says, including the batch's dimension, and a module is called with it
as it is. One input is a positional argument; several are keyword arguments by their names. ``BYTES`` are
strings: one string for a shape of one element, and (nested) lists of strings for other shapes. With
``"parameters": {"content_type": "base64"}`` they are bytes. Elements may follow the JSON
(``binary_tensors``).

If the model returns a mapping, it names the outputs. If not, they have the names of the inputs, as in
TorchServe's envelope, and ``output-N`` if there are more outputs.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from interpool.handler.backend.binary_tensors import (
    LENGTH_HEADER,
    BinaryAnswer,
    BinaryInputs,
    WantedOutputs,
    answer_of,
    behind,
    elements_of,
    is_binary,
    json_length,
    strings_of,
)
from interpool.handler.backend.dense_tensors import require_sizes
from interpool.handler.backend.envelope_requests import Request, Subject, body_of, bytes_of, object_in
from interpool.handler.backend.inputs import Arguments, decoded, is_numeric, refuse_form
from interpool.handler.backend.outputs import jsonable
from interpool.handler.errors import InputError

_DATATYPES = {
    "BOOL": torch.bool,
    "UINT8": torch.uint8,
    "UINT16": torch.uint16,
    "UINT32": torch.uint32,
    "UINT64": torch.uint64,
    "INT8": torch.int8,
    "INT16": torch.int16,
    "INT32": torch.int32,
    "INT64": torch.int64,
    "FP16": torch.float16,
    "BF16": torch.bfloat16,
    "FP32": torch.float32,
    "FP64": torch.float64,
}
_NAMES = {dtype: name for name, dtype in _DATATYPES.items()}
_BYTES = "BYTES"


def tensors(row: Mapping[str, Any], headers: Mapping[str, Any], subject: Subject) -> Request:
    """Parse a request of the protocol: one call, with a tensor for each input.

    Args:
        row: the request's fields as TorchServe's backend decodes them.
        headers: the request's headers, and under each field's name its own.
        subject: the model, and the request's id.

    Raises:
        InputError: the request cannot be understood.
    """
    refuse_form(headers)
    body = body_of(row)
    length = json_length(headers)
    if length is None or not isinstance(body, (bytes, bytearray)):
        content, binary = object_in(body), None
    elif length > len(body):
        raise InputError(f"the header {LENGTH_HEADER} says {length}, and the body has {len(body)} bytes")
    else:
        content, binary = object_in(bytes(memoryview(body)[:length])), BinaryInputs(body, length)
    inputs = content.get("inputs")
    if not isinstance(inputs, list) or not inputs or not all(isinstance(each, dict) for each in inputs):
        raise InputError(
            'this model\'s envelope takes {"inputs": [...]}, each with name, shape, datatype and data'
        )
    names = [str(each.get("name", f"input-{index}")) for index, each in enumerate(inputs)]
    if len(set(names)) < len(names):
        raise InputError(f"inputs must have different names, not {', '.join(names)}")
    values = {name: _input(name, each, binary) for name, each in zip(names, inputs, strict=True)}
    if binary is not None:
        binary.end()
    wanted = WantedOutputs(content)
    call = Arguments(tuple(values.values()), {}) if len(values) == 1 else Arguments((), values)
    given = content.get("id")

    def answer(parts: list[Any]) -> dict[str, Any] | BinaryAnswer:
        outputs: list[_Output] = parts[0]
        content = {
            "id": given if isinstance(given, str) and given.strip() else subject.request_id,
            "model_name": subject.model.get("modelName"),
            "model_version": subject.model.get("modelVersion"),
            "outputs": [each.described for each in outputs],
        }
        if not wanted.any:
            return content
        return answer_of(content, [each.elements for each in outputs if each.elements is not None])

    return Request([call], True, lambda value: _outputs(value, names, wanted), answer)


def _input(name: str, described: Mapping[str, Any], binary: BinaryInputs | None) -> Any:
    datatype, data, shape = (described.get(key) for key in ("datatype", "data", "shape"))
    if datatype != _BYTES and datatype not in _DATATYPES:
        raise InputError(f"input {name!r}: its datatype must be one of {', '.join(_DATATYPES)} or {_BYTES}")
    if is_binary(described):
        if binary is None:
            raise InputError(
                f"input {name!r}: its elements are behind the JSON: say with the header {LENGTH_HEADER} "
                "where that ends, and send the body as application/octet-stream"
            )
        found = binary.take(name, described, _DATATYPES.get(datatype))
        return found if isinstance(found, torch.Tensor) else _shaped(found, described["shape"])
    if not isinstance(data, list) or not isinstance(shape, list):
        raise InputError(f"input {name!r}: it needs `shape` and `data`, both as lists")
    if not all(type(size) is int for size in shape):
        raise InputError(f"input {name!r}: its shape must hold whole numbers")
    require_sizes(f"input {name!r} is a tensor", shape)
    if datatype == _BYTES:
        return _strings(name, data, shape, described.get("parameters"))
    try:
        if not _DATATYPES[datatype].is_floating_point and any(
            isinstance(value, float) for value in _flat(data)
        ):
            raise ValueError("it holds numbers that are not whole")
        tensor = torch.tensor(data, dtype=_DATATYPES[datatype]).reshape(shape)
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        raise InputError(f"input {name!r}: its data is no {datatype} of shape {shape}: {error}") from None
    require_sizes(f"input {name!r} is a tensor", tensor.shape)  # a size of -1 may be 0 here
    return tensor


def _strings(name: str, data: list[Any], shape: list[int], parameters: Any) -> Any:
    values = _flat(data)
    if not all(isinstance(value, str) for value in values):
        raise InputError(f"input {name!r}: {_BYTES} are strings in JSON")
    if isinstance(parameters, dict) and parameters.get("content_type") == "base64":
        values = [decoded(name, bytes_of(value)) for value in values]
    known = math.prod(size for size in shape if size >= 0)
    sizes = [size if size >= 0 else len(values) // max(known, 1) for size in shape]
    if math.prod(sizes) != len(values):
        raise InputError(f"input {name!r}: its data has {len(values)} elements, not the shape {shape}")
    return _shaped(values, sizes)


def _shaped(values: list[Any], sizes: Sequence[int]) -> Any:
    if len(values) == 1 and len(sizes) < 2:
        return values[0]
    for size in reversed(sizes[1:]):
        values = [values[at : at + size] for at in range(0, len(values), size)] if size else []
    return values


def _flat(data: Any) -> list[Any]:
    if not isinstance(data, list):
        return [data]
    return [value for item in data for value in _flat(item)]


class _Output(NamedTuple):
    described: dict[str, Any]
    elements: memoryview | bytes | None = None  # if they follow the JSON


def _outputs(value: Any, input_names: Sequence[str], wanted: WantedOutputs) -> list[_Output]:
    """The result of a call as the outputs of an answer; raises TypeError that names a type."""
    if isinstance(value, Mapping):
        return [_output(str(name), item, wanted) for name, item in value.items()]
    values = value if isinstance(value, (tuple, list)) and value and all(map(_is_array, value)) else [value]
    names = [*input_names, *(f"output-{index}" for index in range(len(input_names), len(values)))]
    return [_output(name, item, wanted) for name, item in zip(names, values, strict=False)]


def _output(name: str, value: Any, wanted: WantedOutputs) -> _Output:
    if not wanted.binary(name):
        return _Output(_in_numbers(name, value))
    tensor = _tensor(value) if _is_array(value) else None
    if tensor is not None:
        elements: memoryview | bytes = elements_of(tensor)
        return _Output(behind(_described(name, tensor.shape, _NAMES[tensor.dtype], []), elements), elements)
    if isinstance(value, (bytes, bytearray)):
        elements = strings_of([bytes(value)])
        return _Output(behind(_described(name, [1], _BYTES, []), elements), elements)
    described = _in_numbers(name, value)
    if described["datatype"] == _BYTES:
        elements = strings_of(described["data"])
    else:
        elements = elements_of(torch.tensor(described["data"], dtype=_DATATYPES[described["datatype"]]))
    return _Output(behind(described, elements), elements)


def _in_numbers(name: str, value: Any) -> dict[str, Any]:
    if _is_array(value):
        tensor = _tensor(value)
        if tensor is not None:
            return _described(name, tensor.shape, _NAMES[tensor.dtype], tensor.flatten().tolist())
    if isinstance(value, (bytes, bytearray)):
        text = base64.b64encode(value).decode()
        return {**_described(name, [1], _BYTES, [text]), "parameters": {"content_type": "base64"}}
    value = jsonable(value)
    values = value if isinstance(value, list) else [value]
    if values and is_numeric(values):
        try:
            tensor = torch.tensor(values, dtype=torch.float64 if _has_float(values) else None)
            return _described(name, tensor.shape, _NAMES[tensor.dtype], tensor.flatten().tolist())
        except (ValueError, TypeError, RuntimeError, OverflowError):
            pass  # not rectangular: each row as JSON
    texts = [item if isinstance(item, str) else json.dumps(item) for item in values]
    return _described(name, [len(texts)], _BYTES, texts)


def _described(name: str, shape: Sequence[int], datatype: str, data: list[Any]) -> dict[str, Any]:
    return {"name": name, "shape": list(shape), "datatype": datatype, "data": data}


def _is_array(value: Any) -> bool:
    return isinstance(value, torch.Tensor) or (hasattr(value, "dtype") and hasattr(value, "tolist"))


def _tensor(value: Any) -> torch.Tensor | None:
    """A tensor or an array of numbers as a tensor; None if it has no datatype of numbers."""
    try:
        tensor = value.detach().cpu() if isinstance(value, torch.Tensor) else torch.as_tensor(value)
    except (TypeError, ValueError):
        return None
    return tensor if tensor.dtype in _NAMES else None


def _has_float(values: list[Any]) -> bool:
    return any(isinstance(value, float) for value in _flat(values))
