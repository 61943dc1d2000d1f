"""Reads files of tensors that are request bodies: safetensors, and what ``numpy.save`` writes.

The formats' own libraries are not used. That of safetensors is an extension module, which each private
interpreter would have to load, and it copies twice. numpy evaluates the header as Python. Each format says
little more than types and sizes, and ``DenseTensors`` checks those. ``torch_save_files`` reads what
``torch.save`` writes.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final, NoReturn

import torch

from interpool.handler.backend.dense_tensors import (
    MOST_DIMENSIONS,
    NUMPY_TYPES,
    DenseTensors,
    contiguous_strides,
    shown,
)
from interpool.handler.errors import InputError

MOST_HEADER: Final = 1 << 20
"""Bytes of a safetensors header: enough for some 10,000 tensors."""

_METADATA = "__metadata__"
_SAFETENSORS_TYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "U16": torch.uint16,
    "U32": torch.uint32,
    "U64": torch.uint64,
    "I8": torch.int8,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
    "C64": torch.complex64,
}

_NPY_MAGIC = b"\x93NUMPY"
_MOST_NPY_HEADER = 4096  # 64 sizes of 20 digits fit
# As numpy writes it, blanks aside; each format's version has the same for an array without fields.
_NPY_HEADER = re.compile(
    rb"\{ *'descr': *'([<>|=])([a-z]\d{1,2})', *'fortran_order': *(True|False), "
    rb"*'shape': *\(((?: *\d{1,19} *,)*(?: *\d{1,19})?) *\),? *\} *\n?"
)
_NPY_TYPES = {
    "b1": torch.bool,
    **{code: dtype for dtype, code in NUMPY_TYPES.items() if dtype not in (torch.bool, torch.bfloat16)},
}


def read_safetensors(name: str, data: bytes | bytearray) -> dict[str, torch.Tensor]:
    """Read a safetensors file.

    Args:
        name: of the body, for messages.
        data: the content of the file.

    Returns:
        The tensors by their names: contiguous, on the CPU, in their own memory.

    Raises:
        InputError: the file breaks the format, or contains a type that is not supported.
    """
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > len(data) - 8:
        _refuse_safetensors(name, "is cut short")
    if length > MOST_HEADER:
        _refuse_safetensors(name, f"has a header of {length:,} bytes, of which {MOST_HEADER:,} are allowed")
    header = _header(name, data[8 : 8 + length])
    header.pop(_METADATA, None)
    found = {key: _claim(name, key, claim) for key, claim in header.items()}
    tensors = DenseTensors(name, data)
    made = {}
    end = 0
    # A tensor without elements has the same first byte as the next tensor, and comes before it.
    for key, (dtype, shape, first, last) in sorted(found.items(), key=lambda item: item[1][2:]):
        if first != end:
            _refuse_safetensors(name, f"has bytes before {shown(key)} that belong to no tensor, or to two")
        if math.prod(shape) * dtype.itemsize != last - first:
            _refuse_safetensors(name, f"gives {shown(key)} another size than its shape has")
        made[key] = tensors.make(dtype, range(8 + length + first, 8 + length + last), shape)
        end = last
    if end != len(data) - 8 - length:
        _refuse_safetensors(name, "has bytes at its end that belong to no tensor, or lacks some")
    return {key: made[key] for key in found}


def _header(name: str, text: bytes | bytearray) -> dict[str, Any]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise ValueError("a name stands there twice")
        return dict(pairs)

    try:
        header = json.loads(text.decode(), object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        _refuse_safetensors(name, f"has a header that is not JSON: {shown(str(error))}")
    if not isinstance(header, dict) or not text.startswith(b"{"):
        _refuse_safetensors(name, "has a header that is no JSON object")
    return header


def _claim(name: str, key: str, claim: Any) -> tuple[torch.dtype, list[int], int, int]:
    """Type and shape of a tensor, its first byte, and the one after its last, as the header says."""
    if not isinstance(claim, dict) or claim.keys() != {"dtype", "shape", "data_offsets"}:
        _refuse_safetensors(name, f"says of {shown(key)} other things than dtype, shape and data_offsets")
    code, shape, place = claim["dtype"], claim["shape"], claim["data_offsets"]
    dtype = _SAFETENSORS_TYPES.get(code) if isinstance(code, str) else None
    if dtype is None:
        raise InputError(
            f"{name} holds {shown(key)} as {shown(code) if isinstance(code, str) else 'no text'}, "
            f"which is no type that can be sent: send one of {', '.join(_SAFETENSORS_TYPES)}"
        )
    for numbers in (shape, place):
        if not isinstance(numbers, list) or len(numbers) > MOST_DIMENSIONS or not all(map(_is_size, numbers)):
            _refuse_safetensors(name, f"says of {shown(key)} a shape or data_offsets of no whole numbers")
    if len(place) != 2:
        _refuse_safetensors(name, f"says of {shown(key)} data_offsets that are no two numbers")
    return dtype, shape, *place


def _is_size(number: Any) -> bool:
    return type(number) is int and 0 <= number < 1 << 63


def _refuse_safetensors(name: str, what: str) -> NoReturn:
    raise InputError(f"{name} is no safetensors file: it {what}. Send what safetensors.torch.save writes")


def read_npy(name: str, data: bytes | bytearray) -> torch.Tensor:
    """Read the array in a file that ``numpy.save`` wrote.

    Args:
        name: of the body, for messages.
        data: the content of the file.

    Returns:
        A tensor of the array's type and shape: contiguous, on the CPU, in its own memory.

    Raises:
        InputError: the file breaks the format, or does not contain plain numbers.
    """
    if not data.startswith(_NPY_MAGIC) or len(data) < 10:
        _refuse_npy(name, "does not begin as one")
    width = {1: 2, 2: 4, 3: 4}.get(data[6])
    if width is None or data[7]:
        _refuse_npy(name, f"has the version {data[6]}.{data[7]}, of which numpy knows nothing")
    start = 8 + width
    length = int.from_bytes(data[8:start], "little")
    if length > min(_MOST_NPY_HEADER, len(data) - start):
        _refuse_npy(name, "has a header that is too long, or is cut short")
    header = _NPY_HEADER.fullmatch(data[start : start + length])
    if header is None:
        _refuse_npy(
            name, "has a header that is not of plain numbers (no objects, texts, dates or fields: no pickles)"
        )
    order, code, fortran, sizes = (group.decode() for group in header.groups())
    dtype = _NPY_TYPES.get(code)
    if dtype is None:
        raise InputError(
            f"{name} holds an array of {shown(code)}, which is no type that can be sent: "
            "send array.astype('float32')"
        )
    shape = [int(size) for size in sizes.split(",") if size.strip()]
    start += length
    if math.prod(shape) * dtype.itemsize != len(data) - start:
        _refuse_npy(name, "has more or fewer bytes than its shape says")
    strides = contiguous_strides(shape[::-1])[::-1] if fortran == "True" else None
    return DenseTensors(name, data).make(
        dtype, range(start, len(data)), shape, strides, big_endian=order == ">"
    )


def _refuse_npy(name: str, what: str) -> NoReturn:
    raise InputError(f"{name} is no npy file: it {what}. Send what numpy.save writes of an array of numbers")
