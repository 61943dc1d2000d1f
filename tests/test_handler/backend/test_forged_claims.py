"""Files in good order that say anything of their tensors: refused, or read as their libraries read them."""

from __future__ import annotations

import io
import json
import math
from typing import Any

import numpy as np
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from many_examples import EXAMPLES
from test_handler.backend.forged_torch_files import file_of, pickle_of, reference, tensor
from test_handler.backend.test_forged_files import validate

from interpool.handler.backend.tensor_files import read_npy, read_safetensors
from interpool.handler.backend.torch_save_files import read_torch_save
from interpool.handler.errors import InputError

STORAGES = {"Bool": 1, "Byte": 1, "Short": 2, "BFloat16": 2, "Float": 4, "Long": 8, "ComplexDouble": 16}
SAFETENSORS = {"BOOL": 1, "U8": 1, "I16": 2, "BF16": 2, "F32": 4, "I64": 8, "C64": 8}
NPY = ["|b1", "|u1", "<u2", ">u2", "<f4", ">f4", "<i8", ">c8", "<c16"]
LARGE = [1 << 31, 1 << 32, 1 << 62, 1 << 63, 1 << 64]

_sizes = st.sampled_from([0, 1, 1, 2, 2, 2, 3, 3, 4])
_numbers = st.integers(-1, 4) | st.sampled_from(LARGE)
_shapes = st.lists(_sizes, max_size=4) | st.lists(_sizes | _numbers, max_size=4)


def _bits(value: Any) -> Any:
    """What two readings must have in common."""
    if isinstance(value, (tuple, list)):
        return [_bits(each) for each in value]
    if isinstance(value, dict):
        return {name: _bits(each) for name, each in value.items()}
    copied = torch.empty(value.shape, dtype=value.dtype).copy_(value)
    if (
        value.dtype == torch.bool
    ):  # torch and numpy leave a bool's byte as it is, which may be neither 0 nor 1
        copied = copied.view(torch.uint8) != 0
    return value.dtype, value.shape, copied.reshape(-1).view(torch.uint8).tolist() if copied.numel() else []


def _is_read(value: Any, data: bytes, expected: Any) -> None:
    validate(value, len(data))
    assert _bits(value) == _bits(expected)


@st.composite
def _torch_save(draw: st.DrawFn) -> bytes:
    """One to three tensors of one storage, their sizes and strides being any."""
    kind = draw(st.sampled_from(list(STORAGES)))
    storage = draw(st.binary(min_size=128, max_size=128))
    count = draw(st.just(128 // STORAGES[kind]) | _numbers)
    tensors = []
    for _ in range(draw(st.integers(1, 3))):
        shape = draw(_shapes)
        behind = [math.prod(shape[place + 1 :]) for place in range(len(shape))]
        tensors.append(
            tensor(
                first=draw(st.integers(0, 2) | _numbers),
                shape=tuple(shape),
                strides=draw(st.just(tuple(behind)) | st.tuples(*[_sizes | _numbers] * len(shape))),
                stored=reference(count, storage=f"torch.{kind}Storage"),
            )
        )
    return file_of(pickle_of(b"(" + b"".join(tensors) + b"t"), storage=storage)


@st.composite
def _safetensors(draw: st.DrawFn) -> bytes:
    """One to three tensors behind each other, but for a byte more or less."""
    header = {}
    at = 0
    for name in "xyz"[: draw(st.integers(1, 3))]:
        kind, shape = draw(st.sampled_from(list(SAFETENSORS))), draw(_shapes)
        size = math.prod(shape) * SAFETENSORS[kind]
        size = size if 0 <= size < 4096 else 4
        moved = draw(st.sampled_from([0] * 8 + [-1, 1]))
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [at + moved, at + size]}
        at += size
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + (draw(st.binary(min_size=8, max_size=8)) * at)[:at]


@st.composite
def _npy(draw: st.DrawFn) -> bytes:
    """An array of a shape that its bytes may not have."""
    kind, shape = draw(st.sampled_from(NPY)), tuple(draw(_shapes))
    size = math.prod(shape) * np.dtype(kind).itemsize + draw(st.sampled_from([0] * 8 + [-1, 1]))
    size = size if 0 <= size < 4096 else 4
    header = f"{{'descr': '{kind}', 'fortran_order': {draw(st.booleans())}, 'shape': {shape}, }}".encode()
    start = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    return start + (draw(st.binary(min_size=16, max_size=16)) * (size // 16 + 1))[:size]


@settings(max_examples=EXAMPLES, deadline=None)
@given(_torch_save())
def test_a_torch_save_file_is_refused_or_read_as_torch_reads_it(data: bytes) -> None:
    try:
        value = read_torch_save("the body", data)
    except InputError:
        return
    try:
        expected = torch.load(io.BytesIO(data), weights_only=True)
    except (
        TypeError,
        ValueError,
    ):  # a number beyond 64 bits that says nothing, as of a tensor of no elements
        validate(value, len(data))
    else:
        _is_read(value, data, expected)


@settings(max_examples=EXAMPLES, deadline=None)
@given(_safetensors())
def test_a_safetensors_file_is_refused_or_read_as_its_library_reads_it(data: bytes) -> None:
    try:
        value = read_safetensors("the body", data)
    except InputError:
        return
    _is_read(value, data, safetensors.torch.load(data))


@settings(max_examples=EXAMPLES, deadline=None)
@given(_npy())
def test_an_npy_file_is_refused_or_read_as_numpy_reads_it(data: bytes) -> None:
    try:
        value = read_npy("the body", data)
    except InputError:
        return
    array = np.load(io.BytesIO(data), allow_pickle=False)
    _is_read(value, data, torch.from_numpy(array.astype(array.dtype.newbyteorder("="), order="C")))
