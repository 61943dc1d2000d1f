"""Bodies in the formats of safetensors and ``numpy.save``: what is read of them, and what is refused."""

from __future__ import annotations

import io
import json
import struct
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from interpool.handler.backend.dense_tensors import NUMPY_TYPES
from interpool.handler.backend.tensor_files import read_npy, read_safetensors
from interpool.handler.errors import InputError

IN_NUMPY = [dtype for dtype in NUMPY_TYPES if dtype != torch.bfloat16]
IN_SAFETENSORS = [dtype for dtype in NUMPY_TYPES if dtype != torch.complex128]


def _tensor(dtype: torch.dtype) -> torch.Tensor:
    return torch.arange(24).reshape(2, 3, 4).to(dtype)


@pytest.mark.parametrize("dtype", IN_SAFETENSORS)
def test_safetensors_come_back_as_they_were(dtype: torch.dtype) -> None:
    sent = {"x": _tensor(dtype), "none": _tensor(dtype)[:0], "y": _tensor(dtype)[0, 0, 0].clone()}
    read = read_safetensors("the body", safetensors.torch.save(sent, {"by": "a client"}))
    assert read.keys() == sent.keys()
    for name, tensor in sent.items():
        assert torch.equal(read[name], tensor)
        assert read[name].dtype == dtype
        assert read[name].is_contiguous()


def test_a_safetensors_file_without_tensors_is_an_empty_dict() -> None:
    assert read_safetensors("the body", safetensors.torch.save({})) == {}


def safetensors_of(header: Any, content: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + content


def _one(dtype: Any = "U8", shape: Any = (4,), place: Any = (0, 4), **more: Any) -> dict[str, Any]:
    return {"x": {"dtype": dtype, "shape": shape, "data_offsets": place, **more}}


FORGED_SAFETENSORS = {
    "nothing": b"",
    "a header longer than the file": safetensors_of({}, length=1 << 62),
    "a header of 2 MiB": safetensors_of(b"{" + b" " * (2 << 20) + b"}"),
    "no JSON": safetensors_of(b"{"),
    "no UTF-8": safetensors_of(b"{\xff}"),
    "a header that is a list": safetensors_of([]),
    "blanks before the header": safetensors_of(b" {}"),
    "deep JSON": safetensors_of(b'{"x":' * 100_000),
    "one name twice": safetensors_of(b'{"x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"x":{}}'),
    "a number of 5,000 digits": safetensors_of(b'{"x":' + b"9" * 5000 + b"}"),
    "NaN": safetensors_of(b'{"x":NaN}'),
    "no claim": safetensors_of({"x": None}),
    "one claim more": safetensors_of(_one(more=1), bytes(4)),
    "an unknown type": safetensors_of(_one("U7"), bytes(4)),
    "a type of 8 bits": safetensors_of(_one("F8_E4M3"), bytes(4)),
    "a type that is a list": safetensors_of(_one([]), bytes(4)),
    "a size below 0": safetensors_of(_one(shape=[-4]), bytes(4)),
    "a size that is a bool": safetensors_of(_one(shape=[4, True]), bytes(4)),
    "a size that is a float": safetensors_of(_one(shape=[4.0]), bytes(4)),
    "sizes that overflow": safetensors_of(_one(shape=[2**32, 2**32, 4]), bytes(4)),
    "a size beyond 64 bits": safetensors_of(_one(shape=[2**64, 0], place=[0, 0])),
    "65 dimensions": safetensors_of(_one(shape=[1] * 65, place=[0, 1]), bytes(1)),
    "huge sizes and no elements": safetensors_of(_one(shape=[0, 2**40], place=[0, 0])),
    "an expanded shape": safetensors_of(_one(shape=[1000]), bytes(4)),
    "one offset": safetensors_of(_one(place=[4]), bytes(4)),
    "offsets backwards": safetensors_of(_one(place=[4, 0]), bytes(4)),
    "offsets beyond the file": safetensors_of(_one(place=[0, 4]), bytes(3)),
    "bytes behind the last": safetensors_of(_one(place=[0, 4]), bytes(5)),
    "bytes before the first": safetensors_of(_one(place=[1, 5]), bytes(5)),
    "two in one place": safetensors_of({**_one(), "y": _one()["x"]}, bytes(4)),
}


@pytest.mark.parametrize("forged", FORGED_SAFETENSORS)
def test_a_forged_safetensors_file_is_refused(forged: str) -> None:
    with pytest.raises(InputError, match="the body"):
        read_safetensors("the body", FORGED_SAFETENSORS[forged])


def _npy(array: np.ndarray[Any, Any], version: tuple[int, int] | None = None, pickles: bool = False) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version, allow_pickle=pickles)
    return file.getvalue()


@pytest.mark.parametrize("dtype", IN_NUMPY)
def test_arrays_come_back_as_they_were(dtype: torch.dtype) -> None:
    array = _tensor(dtype).numpy()
    swapped = array.astype(array.dtype.newbyteorder(">"))
    sent_arrays = (array, np.asfortranarray(array), swapped, array[:0], array[0, 0, 0].reshape(()))
    for sent, version in zip(sent_arrays, (1, 2, 3, 1, 2), strict=True):
        read = read_npy("the body", _npy(sent, (version, 0)))
        assert read.dtype == dtype
        assert read.is_contiguous()
        assert np.array_equal(read.numpy(), sent)


def npy_of(header: bytes, content: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    return b"\x93NUMPY" + version + struct.pack("<H", len(header)) + header + content


def _header(descr: str = "'|u1'", order: str = "False", shape: str = "(4,)") -> bytes:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n".encode()


def _without_warning(descr: str) -> bytes:
    return npy_of(_header(descr), bytes(64))


FORGED_NPY = {
    "nothing": b"",
    "the magic alone": b"\x93NUMPY\x01\x00",
    "an unknown version": npy_of(_header(), bytes(4), b"\x04\x00"),
    "a header beyond the file": npy_of(_header(), bytes(4))[:20],
    "a header that is code": npy_of(b"__import__('os').system('true')"),
    "a header of brackets": npy_of(b"(" * 4000),
    "objects as a pickle": _npy(np.array([{}], dtype=object), pickles=True),
    "texts": _npy(np.array(["a"])),
    "dates": _npy(np.array(["2020-01-01"], dtype="M8[D]")),
    "fields": _npy(np.zeros(2, dtype=[("a", "f4")])),
    "a long double": _without_warning("'<f16'"),
    "raw bytes": _without_warning("'|V2'"),
    "fewer bytes": npy_of(_header(), bytes(3)),
    "more bytes": npy_of(_header(), bytes(5)),
    "a size below 0": npy_of(_header(shape="(-4,)"), bytes(4)),
    "sizes that overflow": npy_of(_header(shape=f"({2**62}, 4, 4)"), bytes(4)),
    "huge sizes and no elements": npy_of(_header(shape=f"(0, {2**40})")),
    "65 dimensions": npy_of(_header(shape=f"({'1, ' * 65})"), bytes(1)),
    "order as a number": npy_of(_header(order="1"), bytes(4)),
}


@pytest.mark.parametrize("forged", FORGED_NPY)
def test_a_forged_npy_file_is_refused(forged: str) -> None:
    with pytest.raises(InputError, match="the body"):
        read_npy("the body", FORGED_NPY[forged])


def test_bytes_of_bools_other_than_0_and_1_become_true() -> None:
    read = read_npy("the body", npy_of(_header("'|b1'"), bytes([0, 1, 2, 255])))
    assert read.view(torch.uint8).tolist() == [0, 1, 1, 1]
