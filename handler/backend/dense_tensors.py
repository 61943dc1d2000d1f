"""Makes tensors of bytes that a client sent, and checks every claim about them before it allocates memory.

A client says which type and shape a tensor has, and where in the body its elements are. A wrong claim would
make torch, which does not check it, read or write other requests' memory. A claim must have these
properties:

- The type is one of plain numbers, there are at most 64 dimensions, and sizes and strides are whole numbers
  from 0 on. Sizes are less than 2**63.
- Every element is inside the bytes that the file gives to the tensor.
- All tensors of a body together are no larger than the body, so that a small body makes no large tensor.
- If a tensor has no elements, the product of its sizes, without those that are 0, is at most 1 Mi.

The result is a plain, contiguous tensor on the CPU, in its own memory that torch has aligned.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, NoReturn

import numpy as np
import torch

from interpool.handler.errors import InputError

MOST_DIMENSIONS: Final = 64
"""numpy's limit, and torch's for most operators."""
_LARGEST: Final = 2**63 - 1  # size of a tensor
_MOST_EMPTY: Final = 1 << 20
"""What the sizes of a tensor without elements may multiply to: operators make such tensors large again."""

NUMPY_TYPES: Final = {
    torch.bool: "u1",
    torch.uint8: "u1",
    torch.uint16: "u2",
    torch.uint32: "u4",
    torch.uint64: "u8",
    torch.int8: "i1",
    torch.int16: "i2",
    torch.int32: "i4",
    torch.int64: "i8",
    torch.float16: "f2",
    torch.bfloat16: "u2",  # numpy has none; only its bits are moved
    torch.float32: "f4",
    torch.float64: "f8",
    torch.complex64: "c8",
    torch.complex128: "c16",
}
"""The types that tensors may have, and as what numpy moves their elements."""


class DenseTensors:
    """Makes the tensors of one body.

    Args:
        name: of the body, for messages.
        data: the body. It is only read, and the tensors do not refer to it.
    """

    def __init__(self, name: str, data: bytes | bytearray) -> None:
        self._name = name
        self._data = data
        self._left = len(data)

    def make(
        self,
        dtype: torch.dtype,
        place: range,
        shape: Sequence[Any],
        strides: Sequence[Any] | None = None,
        *,
        first: Any = 0,
        big_endian: bool = False,
    ) -> torch.Tensor:
        """Make a tensor of a type and shape.

        Args:
            dtype: of its elements.
            place: the bytes of the body that contain its elements.
            shape: its sizes, as the client claims.
            strides: its strides in elements, as the client claims; None if its elements are contiguous.
            first: the offset of its first element in ``place``, in elements, as the client claims.
            big_endian: whether each element is big-endian; default: little-endian.

        Raises:
            InputError: a claim is wrong, or the body's tensors are larger than the body.
        """
        if dtype not in NUMPY_TYPES:
            self._refuse(f"{dtype}, which is no type that can be sent: send tensor.to(torch.float32)")
        claimed = shape if strides is None else strides
        if len(claimed) != len(shape) or not _are_whole([first, *shape, *claimed]):
            self._refuse("sizes or strides that are no whole numbers from 0 on: send tensor.clone()")
        require_sizes(f"{self._name} holds a tensor", shape)
        if 0 in shape:
            return torch.empty(shape, dtype=dtype)
        strides = contiguous_strides(shape) if strides is None else strides
        last = first + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
        if (last + 1) * dtype.itemsize > len(place) or place.stop > len(self._data):
            self._refuse("elements outside of its bytes: send it again, as tensor.clone()")
        self._left -= math.prod(shape) * dtype.itemsize
        if self._left < 0:
            raise InputError(
                f"{self._name} holds tensors that are larger than itself, such as expanded ones or several "
                "views of one: send tensor.clone() for each"
            )
        kind = np.dtype(NUMPY_TYPES[dtype]).newbyteorder(">" if big_endian else "<")
        sent: np.ndarray[Any, Any] = np.ndarray(
            shape,
            kind,
            self._data,
            offset=place.start + first * dtype.itemsize,
            strides=[
                # The stride of a size of 1 does not count, and may be more than numpy takes.
                stride * dtype.itemsize if size > 1 else 0
                for size, stride in zip(shape, strides, strict=True)
            ],
        )
        made = torch.empty(shape, dtype=dtype)
        if dtype == torch.bool:
            np.not_equal(sent, 0, out=made.numpy())  # a byte other than 0 and 1 is no bool to C++
        else:
            (made.view(torch.uint16) if dtype == torch.bfloat16 else made).numpy()[...] = sent
        return made

    def _refuse(self, what: str) -> NoReturn:
        raise InputError(f"{self._name} holds a tensor of {what}")


def require_sizes(subject: str, sizes: Sequence[int]) -> None:
    """Check that a tensor may have these sizes.

    Args:
        subject: of the message, with its verb: it goes on with "of ...".
        sizes: of the tensor, as the client claims. A negative one, if it is allowed, stands for another one.

    Raises:
        InputError: there are too many, one is too large, or they are huge and the tensor has no elements.
    """
    if len(sizes) > MOST_DIMENSIONS:
        raise InputError(f"{subject} of {len(sizes)} dimensions: {MOST_DIMENSIONS} are allowed")
    if any(abs(size) > _LARGEST for size in sizes):
        raise InputError(f"{subject} of a size of 2**63 or more")
    if 0 in sizes and math.prod(size for size in sizes if size) > _MOST_EMPTY:
        raise InputError(f"{subject} of no elements and huge sizes: send a tensor that has elements")


def contiguous_strides(shape: Sequence[int]) -> list[int]:
    """The strides of contiguous elements in row-major order, in elements."""
    strides = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return strides[::-1]


def shown(text: str) -> str:
    """Format a client's text for a message: at most 60 characters of it, as printable ASCII."""
    return ascii(text[:60])


def _are_whole(numbers: Sequence[Any]) -> bool:
    return all(type(number) is int and number >= 0 for number in numbers)
